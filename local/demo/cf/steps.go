// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/demo/runner"
)

// pushApp is what `cf push shop --docker-image shop:1 -i 2` sends.
func (d *appDemo) pushApp() error {
	d.BeginStep("cf push shop --docker-image shop:1 -i 2")
	manifest := "applications: [{name: shop, docker: {image: 'shop:1'}, instances: 2, memory: 64M}]"
	if _, err := d.requestAsAlice("POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest, http.StatusAccepted); err != nil {
		return err
	}
	found, err := d.requestAsAlice("GET", "/v3/apps?names=shop", "", http.StatusOK)
	if err != nil {
		return err
	}
	if d.app = stringAt(found, "resources", 0, "guid"); d.app == "" {
		return expectThat(nil, false, "no app shop")
	}
	of := `"relationships":{"app":{"data":{"guid":"` + d.app + `"}}}`
	image, err := d.requestAsAlice("POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+of+`}`, http.StatusCreated)
	if err != nil {
		return err
	}
	build, err := d.requestAsAlice("POST", "/v3/builds", `{"package":{"guid":"`+stringAt(image, "guid")+`"}}`, http.StatusCreated)
	if err != nil {
		return err
	}
	if build, err = d.requestAsAlice("GET", "/v3/builds/"+stringAt(build, "guid"), "", http.StatusOK); err != nil {
		return err
	}
	droplet := `{"data":{"guid":"` + stringAt(build, "droplet", "guid") + `"}}`
	if _, err = d.requestAsAlice("PATCH", "/v3/apps/"+d.app+"/relationships/current_droplet", droplet, http.StatusOK); err != nil {
		return err
	}
	if _, err = d.requestAsAlice("POST", d.appPath("/actions/restart"), "", http.StatusOK); err != nil {
		return err
	}
	return d.awaitRevision("0")
}

// restartApp is what `cf restart shop` sends: a stop and a start, with nothing between them.
func (d *appDemo) restartApp() error {
	d.BeginStep("cf restart shop: a stop and a start within milliseconds")
	for _, action := range []string{"stop", "start"} {
		if _, err := d.requestAsAlice("POST", d.appPath("/actions/"+action), "", http.StatusOK); err != nil {
			return err
		}
	}
	return d.awaitRevision("1")
}

func (d *appDemo) restartInOnePatch() error {
	d.BeginStep("actions/restart: one patch, which never leaves STARTED")
	found, err := d.requestAsAlice("POST", d.appPath("/actions/restart"), "", http.StatusOK)
	if err != nil {
		return err
	}
	if state := stringAt(found, "state"); state != "STARTED" {
		return expectThat(nil, false, state)
	}
	return d.awaitRevision("2")
}

func (d *appDemo) rollApp() error {
	d.BeginStep("cf restart shop --strategy rolling: the new revision beside the old one")
	path, err := d.createDeployment()
	if err != nil {
		return err
	}
	if err := d.awaitDeployment(path, "DEPLOYED"); err != nil {
		return err
	}
	return d.awaitRevision("3")
}

func (d *appDemo) cancelDeployment() error {
	d.BeginStep("A deployment that never gets ready is cancelled")
	if _, err := d.requestAsAlice("PATCH", d.appPath("/processes/web"), `{"command":"HOLLOW_START=1h ./shop"}`, http.StatusOK); err != nil {
		return err
	}
	path, err := d.createDeployment()
	if err != nil {
		return err
	}
	// The new instances need an hour to be ready, so the deployment stays where it is.
	if err := d.awaitDeployment(path, "DEPLOYING"); err != nil {
		return err
	}
	if _, err := d.requestAsAlice("POST", path+"/actions/cancel", "", http.StatusOK); err != nil {
		return err
	}
	if err := d.awaitDeployment(path, "CANCELED"); err != nil {
		return err
	}
	if err := d.awaitRevision("3"); err != nil {
		return err
	}
	_, err = d.requestAsAlice("PATCH", d.appPath("/processes/web"), `{"command":""}`, http.StatusOK)
	return err
}

func (d *appDemo) refuseAuditor() error {
	d.BeginStep("bob, who may only look, is refused at once")
	began := time.Now()
	status, body, err := d.sendRequest("bob", "POST", d.appPath("/actions/stop"), "")
	if err := expectThat(err, status == http.StatusForbidden, body); err != nil {
		return err
	}
	d.PrintObserved("403 after %d ms: %s", time.Since(began).Milliseconds(), stringAt(body, "errors", 0, "detail"))
	return d.awaitRevision("3")
}

func (d *appDemo) deleteApp() error {
	d.BeginStep("cf delete shop -f")
	if _, err := d.requestAsAlice("DELETE", d.appPath(""), "", http.StatusAccepted); err != nil {
		return err
	}
	return d.awaitObserved("no LRP, StatefulSet or Pod is left", func() error {
		out, err := d.kubectl("-n", space, "get", "cfapps,cfprocesses,lrps,statefulsets,pods", "-o", "name")
		return expectThat(err, out == "", out)
	})
}

func (d *appDemo) appPath(path string) string { return "/v3/apps/" + d.app + path }

func (d *appDemo) createDeployment() (string, error) {
	made, err := d.requestAsAlice("POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+d.app+`"}}}}`, http.StatusCreated)
	return "/v3/deployments/" + stringAt(made, "guid"), err
}

func (d *appDemo) awaitDeployment(deployment, reason string) error {
	return d.awaitObserved("the deployment is "+reason, func() error {
		_, body, err := d.sendRequest("alice", http.MethodGet, deployment, "")
		return expectThat(err, stringAt(body, "status", "reason") == reason, body)
	})
}

// instances is how many the app has.
const instances = 2

// awaitRevision waits until all instances run by their stats, and all Pods are of one revision.
func (d *appDemo) awaitRevision(revision string) error {
	err := d.awaitObserved(fmt.Sprintf("stats say that %d of %d instances run", instances, instances), func() error {
		_, body, err := d.sendRequest("alice", http.MethodGet, d.appPath("/processes/web/stats"), "")
		return expectThat(err, strings.Count(body, `"RUNNING"`) == instances, body)
	})
	if err != nil {
		return err
	}
	return d.awaitObserved("all Pods are of revision "+revision, func() error {
		out, err := d.kubectl("-n", space, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.labels}{"\n"}{end}`)
		all, of := len(strings.Fields(out)), strings.Count(out, `/version":"`+revision+`"`)
		return expectThat(err, all == instances && of == instances, out)
	})
}

// useClient does the same with the cf client itself, where there is one.
func (d *appDemo) useClient() error {
	if d.config.CF == "" {
		d.BeginStep("The cf client: there is none here")
		d.AddNote("expected cf, version 8 or 9, on the PATH or in CF_CLI; the rest went without it")
		return nil
	}
	d.BeginStep("The cf client itself")
	kubeconfig, err := d.writeKubeconfig("alice")
	if err != nil {
		return err
	}
	env := []string{"CF_HOME=" + d.config.Dir, "KUBECONFIG=" + kubeconfig, "CF_COLOR=false", "LANG=C"}
	for _, command := range []struct{ line, prints string }{
		{"api " + d.api + " --skip-ssl-validation", ""},
		{"auth alice", ""},
		{"target -o " + org + " -s " + space, space},
		{"apps", "web:2/2"},
		{"restart shop", "#0   running"},
		{"restart shop --strategy rolling", "#1   running"},
	} {
		out, err := d.RunCommand(runner.CommandLine{Program: d.config.CF, Args: strings.Fields(command.line), Env: env, Limit: limit})
		if err := expectThat(err, strings.Contains(out, command.prints), out); err != nil {
			return err
		}
		d.PrintObserved("cf %s", command.line)
	}
	return nil
}

// requestAsAlice sends a request as alice, and prints what a person would type.
func (d *appDemo) requestAsAlice(method, path, body string, want int) (string, error) {
	line := `curl --cacert tls.crt -H "Authorization: Bearer $TOKEN"`
	if method != http.MethodGet {
		line += " -X " + method
	}
	if body != "" {
		line += " -d '" + strings.ReplaceAll(body, "'", `'\''`) + "'"
	}
	d.QuoteOutput(line + " '" + d.api + path + "'")
	status, found, err := d.sendRequest("alice", method, path, body)
	if err := expectThat(err, status == want, fmt.Sprintf("%d %s, want %d", status, found, want)); err != nil {
		return "", err
	}
	d.PrintObserved("%d %s", status, http.StatusText(status))
	return found, nil
}

func (d *appDemo) sendRequest(as, method, path, body string) (status int, found string, err error) {
	r, err := http.NewRequestWithContext(d.Context, method, d.api+path, strings.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	if as != "" {
		r.Header.Set("Authorization", "Bearer "+d.tokens[as])
	}
	response, err := d.http.Do(r)
	if err != nil {
		return 0, "", fmt.Errorf("ask the CF API: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read answer: %w", err)
	}
	return response.StatusCode, string(raw), nil
}

// stringAt is a string in some JSON by its path; empty if there is none.
func stringAt(body string, path ...any) string {
	var value any
	if json.Unmarshal([]byte(body), &value) != nil {
		return ""
	}
	for _, step := range path {
		switch v := value.(type) {
		case map[string]any:
			name, _ := step.(string)
			value = v[name]
		case []any:
			i, ok := step.(int)
			if !ok || i >= len(v) {
				return ""
			}
			value = v[i]
		}
	}
	text, _ := value.(string)
	return text
}
