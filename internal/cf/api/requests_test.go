// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestInvalidBodiesReturnCFErrors sends invalid requests. Each response is a CF error with a status below 500.
func TestInvalidBodiesReturnCFErrors(t *testing.T) {
	e := shared.Get(t)
	const parseError, unprocessable, notFound = "CF-MessageParseError", "CF-UnprocessableEntity", "CF-ResourceNotFound"
	space, app := e.createShop(t, 1, stopped)
	alice := e.callerNamed(t, "alice")
	big := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	scale, instances := "POST /v3/apps/"+app+"/processes/web/actions/scale", "DELETE /v3/apps/"+app+"/processes/web/instances/"
	inSpace := `"relationships":{"space":{"data":{"guid":"` + space + `"}}}`
	for name, test := range map[string]struct {
		request, body string
		status        int
		title, says   string
	}{
		"a body that is not JSON: BadRequest":                                 {"POST /v3/apps", "name=shop", http.StatusBadRequest, parseError, "parse error"},
		"a truncated body: BadRequest":                                        {"POST /v3/apps", `{"name":`, http.StatusBadRequest, parseError, "parse error"},
		"a body above 1 MiB: BadRequest":                                      {"POST /v3/apps", big, http.StatusBadRequest, parseError, "at most 1024 KiB"},
		"a manifest above 256 KiB: BadRequest":                                {"POST /v3/spaces/" + space + "/actions/apply_manifest", big, http.StatusBadRequest, parseError, "at most 256 KiB"},
		"a list instead of an object: UnprocessableEntity":                    {"POST /v3/packages", `[1]`, http.StatusUnprocessableEntity, unprocessable, "expected an object"},
		"a field with a wrong type: UnprocessableEntity":                      {"POST /v3/apps", `{"name":7}`, http.StatusUnprocessableEntity, unprocessable, "expected name to be a string, found a number"},
		"a nested field with a wrong type: UnprocessableEntity":               {"POST /v3/builds", `{"package":{"guid":[]}}`, http.StatusUnprocessableEntity, unprocessable, "expected package.guid to be a string"},
		"a number of instances that is too large: UnprocessableEntity":        {scale, `{"instances":99999999999}`, http.StatusUnprocessableEntity, unprocessable, "expected instances to be a whole number"},
		"a fractional number of instances: UnprocessableEntity":               {scale, `{"instances":1.5}`, http.StatusUnprocessableEntity, unprocessable, "whole number"},
		"an empty body of a request that needs one: UnprocessableEntity":      {"POST /v3/apps", ``, http.StatusUnprocessableEntity, unprocessable, "Invalid space"},
		"a deployment whose fields are all null: NotFound":                    {"POST /v3/deployments", `{"relationships":null,"options":null,"droplet":null,"strategy":null}`, http.StatusNotFound, notFound, "App not found"},
		"an empty app name: UnprocessableEntity":                              {"POST /v3/apps", `{"name":"",` + inSpace + `}`, http.StatusUnprocessableEntity, unprocessable, "expected a name of letters"},
		"a change to a reserved environment variable: UnprocessableEntity":    {"PATCH /v3/apps/" + app + "/environment_variables", `{"var":{"PORT":"1"}}`, http.StatusUnprocessableEntity, unprocessable, "expected an environment variable without a reserved name, found 'PORT'; choose another name"},
		"a new app with a reserved environment variable: UnprocessableEntity": {"POST /v3/apps", `{"name":"reserved","environment_variables":{"A":"b","VCAP_SERVICES":"{}"},` + inSpace + `}`, http.StatusUnprocessableEntity, unprocessable, "expected an environment variable without a reserved name, found 'VCAP_SERVICES'; choose another name"},
		"a manifest with an invalid second app: UnprocessableEntity":          {"POST /v3/spaces/" + space + "/actions/apply_manifest", `applications: [{name: first, docker: {image: x}}, {name: second app}]`, http.StatusUnprocessableEntity, unprocessable, "For application 'second app'"},
		"an instance index that is not a number: NotFound":                    {instances + "one%20two", ``, http.StatusNotFound, notFound, "Instance not found"},
		"a GUID that is a path: NotFound":                                     {"GET /v3/apps/..%2f..%2fapi", ``, http.StatusNotFound, notFound, "App not found"},
		"a revision GUID without a number: NotFound":                          {"GET /v3/revisions/-", ``, http.StatusNotFound, notFound, "Revision not found"},
	} {
		t.Run(name, func(t *testing.T) {
			r := alice.expect(t, test.status, test.request, test.body, "errors.0.title="+test.title)
			if !strings.Contains(r.field(t, "errors.0.detail"), test.says) {
				t.Errorf("found %s, want %q", r.body, test.says)
			}
		})
	}
	// Newer clients may send unknown fields or null. Neither is an error.
	alice.expect(t, http.StatusCreated, "POST /v3/apps", `{"name":"new","something":{"new":[1]},"lifecycle":null,"metadata":{"labels":{"a":"b"}},`+inSpace+`}`)
	if r := alice.send(t, "PUT", "/v3/apps", ""); r.header.Get("Allow") != "GET, POST" {
		t.Errorf("found the methods %q, want GET, POST", r.header.Get("Allow"))
	}
	manifest := `{"applications":[{"name":"shop","sidecars":[{"name":"a"}],"features":{"ssh":true},"random-route":false}]}`
	if r := alice.send(t, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest); len(r.header.Values("X-Cf-Warnings")) != 2 {
		t.Errorf("found %d and the warnings %q, want one of sidecars and one of features", r.status, r.header.Values("X-Cf-Warnings"))
	}
}

// The quota admits only the first app of a manifest with three apps.
func TestFailedManifestNamesAppliedApps(t *testing.T) {
	e := shared.Get(t)
	space := e.createSpace(t)
	const apps, configMaps corev1.ResourceName = "count/cfapps.korifi.cloudfoundry.org", "count/configmaps"
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "small"}}
	quota.Spec.Hard = corev1.ResourceList{apps: resource.MustParse("1"), configMaps: resource.MustParse("0")}
	e.ExpectCreated(t, quota)
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{apps: resource.MustParse("0"), configMaps: resource.MustParse("0")}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), quota))
	testenv.Eventually(t, "the quota is enforced", func() error {
		err := e.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "a-"}}, client.DryRunAll)
		return testenv.ErrorIf(!k8serrors.IsForbidden(err), "found %v", err)
	})
	alice := e.callerNamed(t, "alice")
	manifest := `{"applications":[{"name":"first","docker":{"image":"x:1"}},{"name":"second","docker":{"image":"x:1"}},{"name":"third","docker":{"image":"x:1"}}]}`
	r := alice.send(t, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", manifest)
	if detail := r.field(t, "errors.0.detail"); r.status != http.StatusUnprocessableEntity || !strings.Contains(detail, "exceeded quota: small") || !strings.HasSuffix(detail, "; apps that were already applied: first") {
		t.Errorf("expected 422 that names the quota and the created app, found %d %s", r.status, r.body)
	}
	alice.expect(t, http.StatusOK, "GET /v3/apps?space_guids="+space, "", "resources#=1", "resources.0.name=first")
}

// An app cannot start if its creation was interrupted before its environment was created. The next push creates the
// environment.
func TestPushRepairsAnAppWithoutItsEnvironment(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: app + "-env"}}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), secret))
	alice := e.callerNamed(t, "alice")
	alice.expect(t, http.StatusAccepted, "POST /v3/spaces/"+space+"/actions/apply_manifest", `{"applications":[{"name":"shop"}]}`)
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Name != app {
		t.Errorf("expected the app to own it, found %v", secret.OwnerReferences)
	}
}

func TestListIsReadPageByPage(t *testing.T) {
	e := shared.Get(t)
	const apps, perPage = 5, "2"
	space := e.createSpace(t)
	alice := e.callerNamed(t, "alice")
	for i := range apps {
		alice.expect(t, http.StatusCreated, "POST /v3/apps", fmt.Sprintf(`{"name":"app-%d","relationships":{"space":{"data":{"guid":"%s"}}}}`, i, space))
	}
	var names []string
	for next := e.url + "/v3/apps?space_guids=" + space + "&order_by=-name&per_page=" + perPage; next != ""; {
		r := alice.expect(t, http.StatusOK, "GET "+strings.TrimPrefix(next, e.url), "", "pagination.total_results=5", "pagination.total_pages=3")
		for i := range 2 {
			if name := r.field(t, fmt.Sprintf("resources.%d.name", i)); name != "" {
				names = append(names, name)
			}
		}
		next = r.field(t, "pagination.next.href")
	}
	if got := strings.Join(names, " "); got != "app-4 app-3 app-2 app-1 app-0" {
		t.Errorf("found %s, want all five, the last first", got)
	}
	alice.expect(t, http.StatusOK, "GET /v3/apps?page=99&space_guids="+space, "", "resources#=0")
}
