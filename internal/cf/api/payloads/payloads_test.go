// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

func TestMB(t *testing.T) {
	for size, want := range map[string]int64{"": 0, "64M": 64, "64MB": 64, "1g": 1024, " 2G ": 2048, "1T": 1 << 20} {
		if got, err := ParseMegabytes(size); err != nil || got != want {
			t.Errorf("%q: found %d (%v), want %d", size, got, err, want)
		}
	}
	for _, size := range []string{"M", "1", "-1M", "0M", "1.5G", "99999999999999999999G", "é"} {
		if got, err := ParseMegabytes(size); err == nil {
			t.Errorf("%q: found %d, want it refused", size, got)
		}
	}
}

func TestDecodeIgnoresFieldsOfNewerClients(t *testing.T) {
	var d DeploymentCreate
	body := `{"strategy":"rolling","something":{"new":1},"options":{"max_in_flight":null,"web_instances":null},"revision":null}`
	if err := DecodeJSON(strings.NewReader(body), &d); err != nil || d.Strategy != "rolling" {
		t.Errorf("found %+v (%v), want it read", d, err)
	}
	if err := DecodeJSON(strings.NewReader(""), &d); err != nil {
		t.Errorf("found %v, want an empty body read", err)
	}
	if err := DecodeJSON(strings.NewReader(strings.Repeat(" ", maxBodyBytes+1)), &d); err == nil {
		t.Error("expected a body above 1 MiB refused, found it read")
	}
}

func TestErrorsOfWrongTypesNameBothTypes(t *testing.T) {
	for body, want := range map[string]string{
		`{"strategy":1}`:                              "expected strategy to be a string, found a number",
		`{"options":{"max_in_flight":"2"}}`:           "expected options.max_in_flight to be a whole number, found a string",
		`{"options":{"canary":{"steps":{}}}}`:         "expected options.canary.steps to be a list, found a object",
		`{"relationships":{"app":{"data":"a-guid"}}}`: "expected relationships.app.data to be an object, found a string",
		`"text"`: "expected an object, found a string",
	} {
		var d DeploymentCreate
		if err := DecodeJSON(strings.NewReader(body), &d); err == nil || err.Error() != want {
			t.Errorf("%s: found %v, want %s", body, err, want)
		}
	}
}

// requireClientError expects that err is a client error, which has a status below 500.
func requireClientError(t *testing.T, err error) {
	t.Helper()
	var known *apierrors.CFError
	if err != nil && (!errors.As(err, &known) || known.Status < 400 || known.Status >= 500 || known.Detail == "") {
		t.Errorf("found %v, want a client error", err)
	}
}

func TestManifestsThatCostTooMuchAreRefused(t *testing.T) {
	doubled := "a0: &a0 [x, x]\n"
	for i := range 30 {
		doubled += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for name, test := range map[string]struct{ body, says string }{
		"a repeated alias of a long text: refused":               {"x: &x " + strings.Repeat("y", 40_000) + "\napplications:\n- name: a\n  e: [" + strings.Repeat("*x,", 5000) + "]", "aliases expanded"},
		"thirty nested aliases that each double a list: refused": {doubled + "applications: [{name: a}]", "aliases expanded"},
		"an alias inside its own list: refused":                  {"x: &x [*x]\napplications: [{name: a}]", "aliases expanded"},
		"too many YAML nodes: refused":                           {"x: [" + strings.Repeat("1,", 100_000) + "]\napplications: [{name: a}]", "aliases expanded"},
		"too many apps: refused":                                 {"applications:\n" + strings.Repeat("- name: a\n", maxManifestApps+1), "expected at most 100 apps"},
		"too many processes: refused":                            {"applications:\n- name: a\n  processes:\n" + strings.Repeat("  - type: w\n", maxManifestProcesses), "200 processes"},
		"too many instances: refused":                            {"applications: [{name: a, instances: 2147483647}]", "expected instances of at most 1000, found 2147483647"},
		"too many instances of a worker process: refused":        {"applications: [{name: a, processes: [{type: w, instances: 1001}]}]", "expected instances of at most 1000, found 1001"},
		"too much memory: refused":                               {"applications: [{name: a, memory: 2T}]", "expected a size of at most 1048576M"},
		"a name that is too long: refused":                       {"applications: [{name: a}, {name: " + strings.Repeat("x", 251) + "}]", "expected a name of at most 250 characters, found 251"},
		"a route whose path is too long: refused":                {"applications: [{name: a, routes: [{route: a.example.com/" + strings.Repeat("x", 128) + "}]}]", "expected a path of at most 128 characters, found 129"},
		"a binding name that is too long: refused":               {"applications: [{name: a, services: [{name: db, binding_name: " + strings.Repeat("ä", 256) + "}]}]", "expected a binding name of at most 255 characters, found 256"},
		"a disk size that overflows: refused":                    {"applications: [{name: a, disk_quota: 17592186044416M}]", "expected a size"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begin := time.Now()
			_, err := ParseManifest([]byte(test.body), ProcessLimits{MaxInstances: 1000})
			took := time.Since(begin)
			runtime.ReadMemStats(&after)
			if requireClientError(t, err); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("found %v, want it refused with %q", err, test.says)
			}
			const budget = 80 << 20
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > budget {
				t.Errorf("found %d MB allocated in %s, want less than %d MB", allocated>>20, took, budget>>20)
			}
		})
	}
}

func TestAnchorsOfAnOrdinaryManifestAreRead(t *testing.T) {
	body := "defaults: &defaults {memory: 64M, env: &env {A: 1}}\napplications:\n" +
		"- {name: a, <<: *defaults}\n- {name: b, <<: *defaults, env: *env, processes: [{type: worker, instances: 2}]}"
	m, err := ParseManifest([]byte(body), ProcessLimits{MaxInstances: 1000})
	if err != nil || len(m.Applications) != 2 || m.Applications[1].Memory != "64M" || string(m.Applications[1].Env["A"]) != "1" {
		t.Errorf("found %+v (%v), want both apps with what they share", m, err)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add("applications: [{name: a, docker: {image: x}, instances: 2, memory: 64M, env: {A: 1}}]")
	f.Add("x: &x {memory: 1G, env: {A: null, B: [1]}}\napplications:\n- {name: a, <<: *x, processes: [{type: worker, disk-quota: 1T}]}\n- {name: b}")
	f.Add("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\napplications: *c")
	f.Add("applications: [{name: a, routes: [{route: x}], random-route: true, services: [db], sidecars: [{name: s}]}]")
	f.Add("applications: [{name: 7}]")
	f.Add("? [1]: 2")
	f.Fuzz(func(t *testing.T, body string) {
		m, err := ParseManifest([]byte(body), ProcessLimits{MaxInstances: 1000})
		requireClientError(t, err)
		if err != nil {
			return
		}
		for _, a := range m.Applications {
			if a.Name == "" {
				t.Error("expected a name of each app, found none")
			}
			for name := range a.Variables() {
				if !isSettableVariable(name) {
					t.Errorf("found the variable %q, want it refused", name)
				}
			}
			for _, p := range a.AllProcesses() {
				if mb, err := ParseMegabytes(p.Memory); err != nil || mb < 0 {
					t.Errorf("found the size %q in a manifest that was accepted", p.Memory)
				}
			}
			_ = a.IgnoredParts(false)
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, body := range []string{
		``, `null`, `{}`, `[]`, `7`, `{"name":null}`, `{"var":{"A":"b","C":null}}`, `{"instances":3,"memory_in_mb":null}`,
		`{"strategy":"canary","options":{"max_in_flight":2,"canary":{"steps":[{"instance_weight":10}]},"web_instances":null}}`,
		`{"relationships":{"app":{"data":{"guid":"x"}},"user":{"data":{"username":"u"}}}}`,
		`{"health_check":{"type":"http","data":{"endpoint":"/","timeout":1e3}}}`, "\xff", `{"a":`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, into := range []any{&AppBody{}, &ProcessPatch{}, &ProcessScale{}, &PackageCreate{}, &BuildCreate{}, &DeploymentCreate{}, &EnvVarsPatch{}, &Relationship{}, &OrgOrSpaceBody{}, &RoleCreate{}} {
			requireClientError(t, DecodeJSON(strings.NewReader(body), into))
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"page=2&per_page=5000&order_by=-created_at", "page=0", "per_page=-1", "page=99999999999999999999", "page=9223372036854775807&per_page=5000", "names=a,b,&guids=",
		"label_selector=env in (a,b),!c", "label_selector=a===b", "order_by=--name", "names=%00&page=+1",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		p, err := ParsePage(q)
		requireClientError(t, err)
		if err == nil && (p.Number < 1 || p.PerPage < 1 || p.PerPage > maxPerPage || p.Number > maxPage) {
			t.Errorf("found page %d of %d each, want them in bounds", p.Number, p.PerPage)
		}
		if names := ParseFilter(q, "names"); !q.Has("names") != names.Matches("any name outside the query") {
			t.Errorf("found %q to filter wrongly", q.Get("names"))
		}
		_, err = ParseLabelSelector(q)
		requireClientError(t, err)
	})
}
