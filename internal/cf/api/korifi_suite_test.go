// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// korifiSpecs is the number of specs in Korifi's e2e suite, at its commit fb0a00b.
const korifiSpecs = 161

// korifiDifference is a group of specs of Korifi's e2e suite that fail against Torpor.
type korifiDifference struct {
	expected string
	specs    int
	why      string
}

// korifiDifferences returns all failing specs. The suite ran with an external builder and nodes without containers.
func korifiDifferences() []korifiDifference {
	return []korifiDifference{
		{"service brokers, offerings and plans, managed service instances and their bindings", 18, "create user-provided services"},
		{"security groups", 1, "create NetworkPolicies with kubectl"},
		{"a list of buildpacks that is not empty", 1, "an external builder provides them"},
		{"a build of a package that awaits its code", 5, "the package must be READY, as in Cloud Foundry"},
		{"times of log lines as JSON numbers", 1, "they are strings, as in Cloud Foundry, because many JSON parsers round numbers of this size"},
		{"a task that is deleted after minutes", 1, "tasks are kept for 31 days, as in Cloud Foundry"},
		{"`credentials: null` of a service without credentials", 2, "`credentials` is an empty object, as in Cloud Foundry"},
		{"the command of the Procfile in the manifest of an app", 1, "the manifest has only commands that were set, as in Cloud Foundry"},
		{"credentials of services as files", 4, "apps get the credentials in `VCAP_SERVICES`"},
		{"answers of Korifi's sample app", 3, "a node without containers answers in its place"},
	}
}

// warningsOf returns the warnings of a response, decoded as the cf client does.
func warningsOf(t *testing.T, r response) (all []string) {
	t.Helper()
	for _, header := range r.header.Values("X-Cf-Warnings") {
		for one := range strings.SplitSeq(header, ",") {
			text, err := url.QueryUnescape(one)
			testenv.ExpectNoError(t, err)
			all = append(all, text)
		}
	}
	return all
}

// TestDomainIsDeletedWithItsRoutes deletes a domain with routes in two spaces. A caller without the right to delete the
// domain deletes no route. A route of another domain is not deleted.
func TestDomainIsDeletedWithItsRoutes(t *testing.T) {
	e := shared.Get(t)
	alice, ada := e.callerNamed(t, "alice"), e.adminCaller(t)
	first, second := e.createSpace(t), e.createSpace(t)
	name := first + ".example.org"
	domain := ada.expect(t, http.StatusCreated, "POST /v3/domains", `{"name":"`+name+`","metadata":{"labels":{"team":"red"}}}`, "metadata.labels.team=red").field(t, "guid")
	ada.expect(t, http.StatusOK, "PATCH /v3/domains/"+domain, `{"metadata":{"annotations":{"foo":"bar"},"labels":{"baz":"bar"}}}`,
		"guid="+domain, "name="+name, "metadata.annotations.foo=bar", "metadata.labels.baz=bar")
	other := alice.get(t, "/v3/domains?names=example.com").field(t, "resources.0.guid")
	reserve := func(space, domain string) string {
		return alice.expect(t, http.StatusCreated, "POST /v3/routes",
			`{"host":"h-`+space+`","relationships":{"space":{"data":{"guid":"`+space+`"}},"domain":{"data":{"guid":"`+domain+`"}}}}`).field(t, "guid")
	}
	reserve(first, domain)
	reserve(second, domain)
	kept := reserve(second, other)
	alice.expect(t, http.StatusForbidden, "DELETE /v3/domains/"+domain, "")
	alice.expect(t, http.StatusOK, "GET /v3/routes?domain_guids="+domain, "", "resources#=2")
	job := ada.expect(t, http.StatusAccepted, "DELETE /v3/domains/"+domain, "").location
	if !strings.HasSuffix(job, "/v3/jobs/domain.delete~"+domain) {
		t.Errorf("found the job %s", job)
	}
	ada.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE", "operation=domain.delete")
	alice.expect(t, http.StatusOK, "GET /v3/routes?space_guids="+first+","+second, "", "resources#=1", "resources.0.guid="+kept)
	alice.expect(t, http.StatusNotFound, "GET /v3/domains/"+domain, "")
	ada.expect(t, http.StatusNotFound, "DELETE /v3/domains/"+domain, "")
}

// TestPackagesEndWithTheirApp requests a package and a build of a deleted app after its deletion job has completed, and
// before the garbage collector has deleted them.
func TestPackagesEndWithTheirApp(t *testing.T) {
	e := shared.Get(t)
	_, app := e.createShop(t, 1, stopped)
	alice := e.callerNamed(t, "alice")
	image := alice.get(t, "/v3/apps/"+app+"/packages").field(t, "resources.0.guid")
	build := alice.get(t, "/v3/apps/"+app+"/droplets/current").field(t, "guid")
	job := alice.expect(t, http.StatusAccepted, "DELETE /v3/apps/"+app, "").location
	alice.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE")
	for _, path := range []string{"/v3/packages/" + image, "/v3/builds/" + build, "/v3/droplets/" + build, "/v3/apps/" + app + "/processes/web"} {
		alice.expect(t, http.StatusNotFound, "GET "+path, "")
	}
}

// TestRolesAreListedWithoutFilter lists roles as an admin, and as a developer, who may list no roles.
func TestRolesAreListedWithoutFilter(t *testing.T) {
	e := shared.Get(t)
	ada, space := e.adminCaller(t), e.createSpace(t)
	namespace, user := e.createServiceAccount(t, "carol")
	give := func(role, in, guid string) string {
		t.Helper()
		return ada.expect(t, http.StatusCreated, "POST /v3/roles",
			`{"type":"`+role+`","relationships":{"user":{"data":{"guid":"`+user+`"}},"`+in+`":{"data":{"guid":"`+guid+`"}}}}`).field(t, "guid")
	}
	give("organization_user", "organization", e.org)
	role := give("space_developer", "space", space)
	ofCarol := "/v3/roles?user_guids=" + user
	ada.expect(t, http.StatusOK, "GET "+ofCarol, "", "resources#=2")
	ada.expect(t, http.StatusOK, "GET "+ofCarol+"&types=space_developer", "", "resources#=1", "resources.0.relationships.space.data.guid="+space, "resources.0.guid="+role)
	ada.expect(t, http.StatusOK, "GET /v3/roles/"+role, "", "guid="+role, "type=space_developer", "relationships.user.data.guid="+user)
	// A developer may not list the space's roles.
	carol := e.callerOf(t, namespace, "carol")
	carol.expect(t, http.StatusOK, "GET /v3/roles", "", "resources#=0")
	carol.expect(t, http.StatusNotFound, "GET /v3/roles/"+role, "")
	ada.expect(t, http.StatusNotFound, "GET /v3/roles/kube-system.kube-proxy", "")
	job := ada.expect(t, http.StatusAccepted, "DELETE /v3/roles/"+role, "").location
	ada.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE")
	ada.expect(t, http.StatusNotFound, "GET /v3/roles/"+role, "")
}

// TestOrgIsDeletedByAJobOfItsName expects the job name that clients of Korifi expect.
func TestOrgIsDeletedByAJobOfItsName(t *testing.T) {
	e := shared.Get(t)
	ada := e.adminCaller(t)
	org := ada.expect(t, http.StatusCreated, "POST /v3/organizations", `{"name":"`+e.CreateNamespace(t)+`"}`).field(t, "guid")
	if job := ada.expect(t, http.StatusAccepted, "DELETE /v3/organizations/"+org, "").location; !strings.HasSuffix(job, "/v3/jobs/org.delete~"+org) {
		t.Errorf("found the job %s", job)
	}
}

// TestLoginWarnsOfLongCertificates lists orgs, as the client does at each login, with a certificate and with a token.
func TestLoginWarnsOfLongCertificates(t *testing.T) {
	e := shared.Get(t)
	e.createSpace(t) // This gives alice a role.
	pair, err := tls.X509KeyPair(e.Config.CertData, e.Config.KeyData)
	testenv.ExpectNoError(t, err)
	if valid := time.Until(pair.Leaf.NotAfter); valid < 8*24*time.Hour {
		t.Fatalf("expected a certificate that is valid for more than 8 days, found %s", valid)
	}
	admin := caller{replica: e.replica, authorization: "ClientCert " + base64.StdEncoding.EncodeToString(slices.Concat(e.Config.CertData, e.Config.KeyData))}
	r := admin.expect(t, http.StatusOK, "GET /v3/organizations", "")
	const prefix, suffix = "Warning: The client certificate you provided for user authentication expires at ", "generate short-lived credentials automatically."
	text := prefix + pair.Leaf.NotAfter.UTC().Format(time.RFC3339)
	found := warningsOf(t, r)
	if len(found) != 1 || !strings.HasPrefix(found[0], text) || !strings.Contains(found[0], "recommended validity duration of 168h0m0s") || !strings.HasSuffix(found[0], suffix) {
		t.Errorf("found the warnings %q", found)
	}
	// Clients that do not decode the header can also read the warning.
	if raw := r.header.Get("X-Cf-Warnings"); !strings.HasPrefix(raw, text) {
		t.Errorf("found the header %q", raw)
	}
	r = e.callerNamed(t, "alice").expect(t, http.StatusOK, "GET /v3/organizations", "")
	if found := warningsOf(t, r); len(found) > 0 {
		t.Errorf("found the warnings %q for a token", found)
	}
}

// TestUserWithoutRolesIsWarned lists apps and orgs as a user without roles. The warning explains why the lists are
// empty.
func TestUserWithoutRolesIsWarned(t *testing.T) {
	e := shared.Get(t)
	e.createSpace(t) // This gives alice a role.
	namespace, user := e.createServiceAccount(t, "nobody")
	nobody := e.callerOf(t, namespace, "nobody")
	for _, path := range []string{"/v3/apps", "/v3/organizations"} {
		r := nobody.expect(t, http.StatusOK, "GET "+path, "", "resources#=0")
		if found := strings.Join(warningsOf(t, r), ""); !strings.Contains(found, user) || !strings.Contains(found, "has no CF roles assigned") {
			t.Errorf("%s: found the warnings %q", path, found)
		}
	}
	// alice has roles and has filtered for a name that does not exist, so the empty list needs no warning.
	if found := warningsOf(t, e.callerNamed(t, "alice").get(t, "/v3/organizations?names=nothing")); len(found) > 0 {
		t.Errorf("found the warnings %q", found)
	}
}

// TestOldClientsAreRefused sends requests with the User-Agent headers of several clients.
func TestOldClientsAreRefused(t *testing.T) {
	e := shared.Get(t)
	for agent, status := range map[string]int{
		"cf/0.0.1": http.StatusBadRequest, "cf/7.7.2+c1bfdb6.2023 (go1.20; amd64 linux)": http.StatusBadRequest, "cf/8.4.0": http.StatusBadRequest,
		"cf/8.5.0": http.StatusOK, "cf/8.18.4+abc.2026-01-01 (go1.25; amd64 linux)": http.StatusOK, "cf/9.0.0": http.StatusOK,
		"cf/0.0.0-unknown-version+abc (go1.25; amd64 linux)": http.StatusOK, "curl/8.0": http.StatusOK, "": http.StatusOK,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/v3", http.NoBody)
		testenv.ExpectNoError(t, err)
		request.Header.Set("User-Agent", agent)
		answer, err := e.client.Do(request)
		testenv.ExpectNoError(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != status {
			t.Errorf("%q: found %d, want %d", agent, answer.StatusCode, status)
		}
	}
}

// TestWrongMethodIsAnUnknownRequest expects Cloud Foundry's error for an unknown request, and an Allow header with the
// methods of the path.
func TestWrongMethodIsAnUnknownRequest(t *testing.T) {
	e := shared.Get(t)
	r := e.callerNamed(t, "alice").expect(t, http.StatusNotFound, "POST /v3", "", "errors.0.code=10000", "errors.0.title=CF-NotFound", "errors.0.detail=Unknown request")
	if found := r.header.Get("Allow"); found != "GET" {
		t.Errorf("found the methods %q", found)
	}
}
