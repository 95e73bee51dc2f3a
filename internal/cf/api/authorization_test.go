// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestAcceptedCredentials(t *testing.T) {
	e := shared.Get(t)
	pair := base64.StdEncoding.EncodeToString(slices.Concat(e.Config.CertData, e.Config.KeyData))
	selfSigned, itsKey, err := certutil.GenerateSelfSignedCertKey("alice", nil, nil)
	testenv.ExpectNoError(t, err)
	for name, test := range map[string]struct {
		header string
		status int
		says   string
	}{
		"a token is accepted":                                     {"bearer " + e.requestToken(t, system, "alice"), http.StatusOK, "alice"},
		"a certificate is accepted":                               {"ClientCert " + pair, http.StatusOK, `"kind":"User"`},
		"a certificate with a lower-case scheme name is accepted": {"clientcert " + pair, http.StatusOK, `"kind":"User"`},
		"a request without a header is refused":                   {"", http.StatusUnauthorized, "found none"},
		"a password is refused":                                   {"Basic YTpi", http.StatusUnauthorized, "which Kubernetes does not accept"},
		"a token that Kubernetes does not accept is refused":      {"Bearer nobody", http.StatusUnauthorized, "rejected these credentials"},
		"a certificate without its key is refused":                {"ClientCert " + base64.StdEncoding.EncodeToString(e.Config.CertData), http.StatusUnauthorized, "expected a certificate and its key"},
		"a certificate of an untrusted authority is refused":      {"ClientCert " + base64.StdEncoding.EncodeToString(slices.Concat(selfSigned, itsKey)), http.StatusUnauthorized, "rejected these credentials; log in again"},
		"a request with an unsupported scheme is refused":         {"Digest x", http.StatusUnauthorized, "found neither"},
	} {
		t.Run(name, func(t *testing.T) {
			r := caller{replica: e.replica, authorization: test.header}.get(t, "/whoami")
			if r.status != test.status || !strings.Contains(r.body, test.says) {
				t.Errorf("found %d %s, want %d and %q", r.status, r.body, test.status, test.says)
			}
		})
	}
}

func TestGroupIsLetIn(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	namespace, user := e.createServiceAccount(t, "grace")
	group := "system:serviceaccounts:" + namespace
	e.bindRole(t, space, "torpor-space-developer", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group})
	e.awaitBinding(t, user, []string{group}, space)
	grace := e.callerOf(t, namespace, "grace")
	grace.expect(t, http.StatusOK, "GET /v3/apps", "", "resources#=1")
	grace.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/start", "")
}

func TestRefusalIsNotHeldAndChangesNothing(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 2, started)
	before := e.getApp(t, space, app)
	e.createPodOn(t, "", space, app, "0")
	bob, mallory := e.callerNamed(t, "bob"), e.callerNamed(t, "mallory")
	// A refusal takes milliseconds. On a busy machine it may take a hundred times as long, but always less than 10 s,
	// the time for which a response is held.
	const held = 9 * time.Second
	var took []time.Duration
	for _, request := range []struct{ line, body string }{
		{"POST /v3/apps/" + app + "/actions/stop", ""},
		{"POST /v3/apps/" + app + "/actions/start", ""},
		{"POST /v3/apps/" + app + "/actions/restart", ""},
		{"DELETE /v3/apps/" + app, ""},
		{"PATCH /v3/apps/" + app, `{"name":"mine"}`},
		{"GET /v3/apps/" + app + "/env", ""},
		{"PATCH /v3/apps/" + app + "/environment_variables", `{"var":{"A":"b"}}`},
		{"POST /v3/apps/" + app + "/processes/web/actions/scale", `{"instances":9}`},
		{"DELETE /v3/apps/" + app + "/processes/web/instances/0", ""},
		{"POST /v3/deployments", `{` + relatedTo(app) + `}`},
		{"POST /v3/packages", `{"type":"docker","data":{"image":"x"},` + relatedTo(app) + `}`},
	} {
		for range 10 {
			asBob := bob.expect(t, http.StatusForbidden, request.line, request.body, "errors.0.code=10003")
			asMallory := mallory.expect(t, http.StatusNotFound, request.line, request.body, "errors.0.detail=App not found")
			if asBob.took > held || asMallory.took > held {
				t.Errorf("%s: found it refused after %s and %s, want it refused at once", request.line, asBob.took, asMallory.took)
			}
			took = append(took, asBob.took, asMallory.took)
		}
	}
	slices.Sort(took)
	t.Logf("%d refusals: median %s, worst %s", len(took), took[len(took)/2], took[len(took)-1])
	mallory.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces/"+space+"/actions/apply_manifest", `applications: [{name: mine}]`)
	for _, path := range []string{"/v3/apps", "/v3/processes", "/v3/spaces", "/v3/organizations", "/v3/audit_events", "/v3/deployments"} {
		mallory.expect(t, http.StatusOK, "GET "+path, "", "resources#=0")
	}
	e.expectUnchanged(t, before)
}

// TestRevokedRightsTakeEffect expects that changes are refused immediately after the rights are revoked. Objects become
// invisible within the time that docs/cf.md promises.
func TestRevokedRightsTakeEffect(t *testing.T) {
	e := shared.Get(t)
	const documented = 10 * time.Second
	space, app := e.createShop(t, 1, stopped)
	namespace, user := e.createServiceAccount(t, "dave")
	e.bindRole(t, space, "torpor-space-developer", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "dave"})
	e.awaitBinding(t, user, nil, space)
	dave := e.callerOf(t, namespace, "dave")
	dave.expect(t, http.StatusOK, "GET /v3/apps/"+app, "")
	var bindings rbacv1.RoleBindingList
	if err := e.Client.List(t.Context(), &bindings, client.InNamespace(space)); err != nil {
		t.Fatal(err)
	}
	for i := range bindings.Items {
		if bindings.Items[i].Subjects[0].Name == "dave" {
			if err := e.Client.Delete(t.Context(), &bindings.Items[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	testenv.Eventually(t, "a change is refused", func() error {
		if r := dave.send(t, "POST", "/v3/apps/"+app+"/actions/start", ""); r.status != http.StatusForbidden && r.status != http.StatusNotFound {
			return errorFound(r)
		}
		return nil
	})
	if took := time.Since(begin); took > documented {
		t.Errorf("found a change refused after %s, want it at once", took)
	}
	dave.awaitStatus(t, http.StatusNotFound, "/v3/apps/"+app)
	t.Logf("hidden after %s", time.Since(begin))
	if err := e.Client.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dave"}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the token is no longer accepted", func() error {
		r := dave.get(t, "/whoami")
		if r.status != http.StatusUnauthorized || r.field(t, "errors.0.title") != "CF-NotAuthenticated" {
			return errorFound(r)
		}
		return nil
	})
}

// TestUnreadableObjectsAppearMissing compares, for every route with a GUID, the response to a caller without rights
// with the response for a missing object. It omits jobs, because a job without an object to delete is complete.
func TestUnreadableObjectsAppearMissing(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	alice, mallory := e.callerNamed(t, "alice"), e.callerNamed(t, "mallory")
	deployment := alice.expect(t, http.StatusCreated, "POST /v3/deployments", `{`+relatedTo(app)+`}`).field(t, "guid")
	image := alice.get(t, "/v3/apps/"+app+"/packages").field(t, "resources.0.guid")
	droplet := alice.get(t, "/v3/apps/"+app+"/droplets/current").field(t, "guid")
	domain := alice.get(t, "/v3/domains").field(t, "resources.0.guid")
	address := alice.expect(t, http.StatusCreated, "POST /v3/routes", `{"host":"`+app+`","relationships":{"space":{"data":{"guid":"`+space+`"}},"domain":{"data":{"guid":"`+domain+`"}}}}`).field(t, "guid")
	ofSpace := `"relationships":{"space":{"data":{"guid":"` + space + `"}}}`
	service := alice.expect(t, http.StatusCreated, "POST /v3/service_instances", `{"type":"user-provided","name":"db",`+ofSpace+`}`).field(t, "guid")
	binding := alice.expect(t, http.StatusCreated, "POST /v3/service_credential_bindings",
		`{"type":"app","relationships":{"service_instance":{"data":{"guid":"`+service+`"}},"app":{"data":{"guid":"`+app+`"}}}}`).field(t, "guid")
	task := alice.expect(t, http.StatusCreated, "POST /v3/apps/"+app+"/tasks", `{"command":"true"}`).field(t, "guid")
	guids := map[string]string{
		"routes": address, "service_instances": service, "service_credential_bindings": binding, "tasks": task,
		"apps": app, "processes": revision.ProcessName(app, "web"), "packages": image, "builds": droplet, "droplets": droplet, "deployments": deployment,
		"revisions": app + "-0", "spaces": space, "organizations": e.org, "read": app, "roles": space + "." + e.anyBinding(t, space),
	}
	// The body is valid for every route that reads a body.
	const body = `{"name":"x","type":"docker","data":{"guid":"x","image":"x"},"instances":1,"var":{"A":"b"},"applications":[{"name":"shop"}]}`
	lines := map[string]string{
		"POST /v3/apps {guid of spaces}":                                   `{"name":"shop","relationships":{"space":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/packages {guid of apps}":                                 `{"type":"docker","data":{"image":"x"},"relationships":{"app":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/builds {guid of packages}":                               `{"package":{"guid":"{guid}"}}`,
		"POST /v3/deployments {guid of apps}":                              `{"relationships":{"app":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/spaces {guid of organizations}":                          `{"name":"x","relationships":{"organization":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/service_instances {guid of spaces}":                      `{"type":"user-provided","name":"x","relationships":{"space":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/service_credential_bindings {guid of service_instances}": `{"type":"app","relationships":{"service_instance":{"data":{"guid":"{guid}"}},"app":{"data":{"guid":"x"}}}}`,
		"POST /v3/roles {guid of spaces}":                                  `{"type":"space_developer","relationships":{"user":{"data":{"username":"m"}},"space":{"data":{"guid":"{guid}"}}}}`,
		"POST /v3/roles {guid of organizations}":                           `{"type":"organization_user","relationships":{"user":{"data":{"username":"m"}},"organization":{"data":{"guid":"{guid}"}}}}`,
		"GET /v3/apps?names=shop&space_guids={guid} {guid of spaces}":      "",
		"GET /v3/packages?app_guids={guid} {guid of apps}":                 "",
		"GET /v3/audit_events?target_guids={guid} {guid of apps}":          "",
		"GET /v3/spaces?organization_guids={guid} {guid of organizations}": "",
	}
	for _, route := range handlers.Routes() {
		// The GUID of a job contains the GUID of its object. The quota and the domains are visible to all users.
		if strings.Contains(route.Path, "{guid}") && !slices.ContainsFunc([]string{"jobs", "quotas", "/v3/domains"}, func(part string) bool { return strings.Contains(route.Path, part) }) {
			path := strings.NewReplacer("{type}", "web", "{index}", "0", "{name}", "ssh", "{destination}", "x").Replace(route.Path)
			parts := strings.Split(path, "/")
			lines[route.Method+" "+path+" {guid of "+parts[slices.Index(parts, "{guid}")-1]+"}"] = body
		}
	}
	for line, body := range lines {
		request, kind, _ := strings.Cut(line, " {guid of ")
		guid := guids[strings.TrimSuffix(kind, "}")]
		if guid == "" {
			t.Errorf("%s: expected an object to ask for, found none", line)
			continue
		}
		answerFor := func(guid string) string {
			method, path, _ := strings.Cut(strings.ReplaceAll(request, "{guid}", guid), " ")
			r := mallory.send(t, method, path, strings.ReplaceAll(body, "{guid}", guid))
			if r.status == http.StatusInternalServerError || r.status == http.StatusServiceUnavailable {
				t.Errorf("%s: found %d %s", line, r.status, r.body)
			}
			return strconv.Itoa(r.status) + " " + strings.ReplaceAll(r.body, guid, "{guid}")
		}
		if anothers, absent := answerFor(guid), answerFor("6e8bc430-9c3a-4d1e-8f0a-000000000000"); anothers != absent {
			t.Errorf("%s: found\n%s for another user's object, and\n%s for a missing one", line, anothers, absent)
		}
	}
}

// TestHostIsForOneSpace requests a route with a host that another space owns. With such a route, the caller could
// collect the passwords that users send to that host.
func TestHostIsForOneSpace(t *testing.T) {
	e := shared.Get(t)
	mine, theirs := e.createSpace(t), e.createSpace(t)
	alice := e.callerNamed(t, "alice")
	domain := alice.get(t, "/v3/domains").field(t, "resources.0.guid")
	request := func(space, path string) string {
		return `{"host":"h-` + mine + `","path":"` + path + `","relationships":{"space":{"data":{"guid":"` + space + `"}},"domain":{"data":{"guid":"` + domain + `"}}}}`
	}
	alice.expect(t, http.StatusCreated, "POST /v3/routes", request(mine, ""))
	const reserved = "Routes for this host and domain have been reserved for another space"
	alice.expect(t, http.StatusUnprocessableEntity, "POST /v3/routes", request(theirs, "/login"), "errors.0.detail="+reserved+"; choose another host")
	address := "h-" + mine + ".example.com/login"
	alice.expect(t, http.StatusUnprocessableEntity, "POST /v3/spaces/"+theirs+"/actions/apply_manifest",
		`{"applications":[{"name":"shop","docker":{"image":"x"},"routes":[{"route":"`+address+`"}]}]}`, "errors.0.detail=For application 'shop': "+reserved+": '"+address+"'; choose another host")
	alice.expect(t, http.StatusCreated, "POST /v3/routes", request(mine, "/login"))
}

func (e *testEnv) anyBinding(t *testing.T, namespace string) string {
	t.Helper()
	var bindings rbacv1.RoleBindingList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &bindings, client.InNamespace(namespace)))
	return bindings.Items[0].Name
}

// TestRefusedRollbackChangesNothing rolls back to a revision. The caller may change the app's settings, but may not
// create deployments.
func TestRefusedRollbackChangesNothing(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	alice := e.callerNamed(t, "alice")
	env, web := "/v3/apps/"+app+"/environment_variables", "/v3/apps/"+app+"/processes/web"
	for i, colour := range []string{"red", "blue"} {
		alice.expect(t, http.StatusOK, "PATCH "+env, `{"var":{"COLOUR":"`+colour+`"}}`)
		alice.expect(t, http.StatusOK, "POST /v3/apps/"+app+"/actions/restart", "", "revision="+strconv.Itoa(i+1))
		testenv.Eventually(t, "the revision keeps its settings", func() error {
			if r := alice.get(t, "/v3/revisions/"+app+"-"+strconv.Itoa(i+1)+"/environment_variables"); r.field(t, "var.COLOUR") != colour {
				return errorFound(r)
			}
			return nil
		})
	}
	namespace, user := e.createServiceAccount(t, "dave")
	e.ExpectCreated(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "dave"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{korifiv1alpha1.GroupVersion().Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
	}}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "dave"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "dave"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "dave"}},
	})
	e.awaitBinding(t, user, nil, space)
	dave := e.callerOf(t, namespace, "dave")
	dave.expect(t, http.StatusForbidden, "POST /v3/deployments", `{"revision":{"guid":"`+app+`-1"},"options":{"web_instances":7},`+relatedTo(app)+`}`)
	dave.expect(t, http.StatusOK, "GET "+env, "", "var.COLOUR=blue")
	dave.expect(t, http.StatusOK, "GET "+web, "", "instances=1")
	alice.expect(t, http.StatusCreated, "POST /v3/deployments", `{"revision":{"guid":"`+app+`-1"},"options":{"web_instances":2},`+relatedTo(app)+`}`)
	alice.expect(t, http.StatusOK, "GET "+env, "", "var.COLOUR=red")
	alice.expect(t, http.StatusOK, "GET "+web, "", "instances=2")
}

// TestSameGUIDInTwoSpaces copies an app under its name to two other namespaces, as any developer there can do.
func TestSameGUIDInTwoSpaces(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 2, stopped)
	hidden, seen := e.CreateNamespace(t), e.createSpace(t)
	original := e.getApp(t, space, app)
	awaitAnotherAge(t, original)
	for _, other := range []string{hidden, seen} {
		copied := original.DeepCopy()
		copied.ObjectMeta = metav1.ObjectMeta{Namespace: other, Name: app}
		copied.Spec.DisplayName, copied.Spec.CurrentDropletRef = "hers", nil
		process := &korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: revision.ProcessName(app, "web")}}
		process.Spec = korifiv1alpha1.CFProcessSpec{AppRef: korifiv1alpha1.Reference{Name: app}, ProcessType: "web", MemoryMB: 1, DiskQuotaMB: 1, DesiredInstances: new(int32(7))}
		e.ExpectCreated(t, copied, process)
	}
	alice := e.callerNamed(t, "alice")
	testenv.Eventually(t, "the API has the other app in its cache", func() error {
		if r := alice.get(t, "/v3/apps?space_guids="+seen); r.field(t, "resources#") != "1" {
			return errorFound(r)
		}
		return nil
	})
	// The cache index returns objects in random order, so one request would not be enough.
	for range 20 {
		alice.expect(t, http.StatusOK, "GET /v3/apps/"+app, "", "name=shop", "relationships.space.data.guid="+space)
		alice.expect(t, http.StatusOK, "GET /v3/processes/"+revision.ProcessName(app, "web"), "", "instances=2")
		alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/processes/web/stats", "", "resources#=2")
	}
	job := alice.expect(t, http.StatusAccepted, "DELETE /v3/apps/"+app, "").location
	testenv.Eventually(t, "the app is gone, and the other one exists", func() error {
		_ = alice.get(t, strings.TrimPrefix(job, e.url))
		var left korifiv1alpha1.CFAppList
		if err := e.Client.List(t.Context(), &left, client.MatchingFields{"metadata.name": app}); err != nil {
			return err
		}
		for i := range left.Items {
			if left.Items[i].Namespace == space && left.Items[i].DeletionTimestamp.IsZero() {
				return errors.New("it still exists")
			}
			if left.Items[i].Namespace == seen && !left.Items[i].DeletionTimestamp.IsZero() {
				t.Fatal("found the other one deleted")
			}
		}
		return nil
	})
}

// awaitAnotherAge waits until a new object would have a later creation timestamp than the given object. Creation
// timestamps have whole seconds.
func awaitAnotherAge(t *testing.T, than client.Object) {
	t.Helper()
	testenv.Eventually(t, "objects have another age", func() error {
		return testenv.ErrorIf(time.Since(than.GetCreationTimestamp().Time) < 2*time.Second, "not yet")
	})
}

// TestNamesThatASpaceUsesAreLookedUpInIt creates services, packages and droplets with the same names in two spaces.
// This happens if both spaces use the manifests of one repository. Alice has access to both spaces. A name in an app or
// a binding refers to the object in the same space, even if another space has an older object with the name.
func TestNamesThatASpaceUsesAreLookedUpInIt(t *testing.T) {
	e := shared.Get(t)
	older := e.createSpace(t)
	space, app := e.createShop(t, 1, stopped)
	name := "twice-" + older
	for _, in := range []string{older, space} {
		at := metav1.ObjectMeta{Namespace: in, Name: name}
		image := korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: in + ":1"}}
		ofApp, lifecycle := korifiv1alpha1.Reference{Name: app}, korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}
		secret := &corev1.Secret{ObjectMeta: at, Data: map[string][]byte{korifiv1alpha1.CredentialsKey: []byte(`{"of":"` + in + `"}`)}}
		e.ExpectCreated(t, secret,
			&korifiv1alpha1.CFServiceInstance{ObjectMeta: at, Spec: korifiv1alpha1.CFServiceInstanceSpec{DisplayName: "db", SecretName: name, Type: korifiv1alpha1.UserProvidedService}},
			&korifiv1alpha1.CFPackage{ObjectMeta: at, Spec: korifiv1alpha1.CFPackageSpec{Type: korifiv1alpha1.DockerPackage, AppRef: ofApp, Source: image}},
			&korifiv1alpha1.CFBuild{ObjectMeta: at, Spec: korifiv1alpha1.CFBuildSpec{AppRef: ofApp, PackageRef: korifiv1alpha1.Reference{Name: name}, Lifecycle: lifecycle}},
		)
		if in == older {
			awaitAnotherAge(t, secret)
		}
	}
	cart := e.createApp(t, space, "cart", 1, stopped)
	e.ExpectCreated(t, &korifiv1alpha1.CFServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: name}, Spec: korifiv1alpha1.CFServiceBindingSpec{
		Service: corev1.ObjectReference{Name: name}, AppRef: corev1.LocalObjectReference{Name: app}, Type: "app",
	}})
	alice := e.callerNamed(t, "alice")
	testenv.ExpectPatched(t, e.Environment, e.getApp(t, space, app), func(a *korifiv1alpha1.CFApp) { a.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: name} })
	testenv.Eventually(t, "the API has the objects of both spaces in its cache", func() error {
		theirs, droplets, services := alice.get(t, "/v3/droplets/"+name), alice.get(t, "/v3/droplets?app_guids="+app), alice.get(t, "/v3/service_instances?space_guids="+older+","+space)
		known := theirs.status == http.StatusOK && theirs.field(t, "image") == older+":1" && strings.Contains(droplets.body, name) && services.field(t, "resources#") == "2"
		return testenv.ErrorIf(!known, "found %s, %s and %s", theirs.body, droplets.body, services.body)
	})
	alice.awaitStatus(t, http.StatusOK, "/v3/service_credential_bindings/"+name)
	testenv.Eventually(t, "the droplet is the app's current one", func() error {
		r := alice.get(t, "/v3/apps/"+app+"/droplets/current")
		return testenv.ErrorIf(r.status != http.StatusOK || r.field(t, "guid") != name, "found %d %s", r.status, r.body)
	})
	alice.expect(t, http.StatusOK, "GET /v3/service_credential_bindings/"+name+"/details", "", "credentials.of="+space)
	alice.expect(t, http.StatusOK, "GET /v3/apps/"+app+"/droplets/current", "", "image="+space+":1")
	alice.expect(t, http.StatusOK, "PATCH /v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+name+`"}}`)
	alice.expect(t, http.StatusCreated, "POST /v3/service_credential_bindings",
		`{"type":"app","relationships":{"service_instance":{"data":{"guid":"`+name+`"}},"app":{"data":{"guid":"`+cart+`"}}}}`)
	if r := alice.get(t, "/v3/apps/"+app+"/manifest"); !strings.Contains(r.body, "image: "+space+":1") {
		t.Errorf("expected a manifest with the image of the app's space, found %s", r.body)
	}
}

// TestHistoryOfOneNameInTwoSpaces creates packages, builds and deployments with the same names in two spaces. Each
// caller receives only the objects in the caller's own space.
func TestHistoryOfOneNameInTwoSpaces(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, started)
	hidden, seen := e.CreateNamespace(t), e.createSpace(t)
	namespace, user := e.createServiceAccount(t, "mallory")
	e.bindRole(t, hidden, "torpor-space-developer", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "mallory"})
	e.awaitBinding(t, user, nil, hidden)
	alice, mallory := e.callerNamed(t, "alice"), e.callerOf(t, namespace, "mallory")
	image := alice.get(t, "/v3/packages?app_guids="+app).field(t, "resources.0.guid")
	droplet := alice.get(t, "/v3/droplets?app_guids="+app).field(t, "resources.0.guid")
	deployment := alice.send(t, "POST", "/v3/deployments", "{"+relatedTo(app)+"}").field(t, "guid")
	first := &torporv1alpha1.CFDeployment{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: deployment}, first))
	awaitAnotherAge(t, first)
	reference, lifecycle := korifiv1alpha1.Reference{Name: app}, korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}
	ofImage := korifiv1alpha1.CFPackageSpec{Type: korifiv1alpha1.DockerPackage, AppRef: reference, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "hers:1"}}}
	for _, other := range []string{hidden, seen} {
		at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: other, Name: name} }
		e.ExpectCreated(t,
			&korifiv1alpha1.CFApp{ObjectMeta: at(app), Spec: korifiv1alpha1.CFAppSpec{DisplayName: "hers", DesiredState: stopped, Lifecycle: lifecycle}},
			&korifiv1alpha1.CFPackage{ObjectMeta: at(image), Spec: ofImage}, &korifiv1alpha1.CFPackage{ObjectMeta: at("another-" + other), Spec: ofImage},
			&korifiv1alpha1.CFBuild{ObjectMeta: at(droplet), Spec: korifiv1alpha1.CFBuildSpec{AppRef: reference, PackageRef: korifiv1alpha1.Reference{Name: image}, Lifecycle: lifecycle}},
			&torporv1alpha1.CFDeployment{ObjectMeta: at(deployment), Spec: torporv1alpha1.CFDeploymentSpec{
				AppRef: torporv1alpha1.AppReference{Name: app}, DropletRef: &torporv1alpha1.AppReference{Name: droplet}, Strategy: torporv1alpha1.CanaryDeployment,
			}},
		)
		testenv.Eventually(t, "the other deployment is over", func() error {
			theirs := &torporv1alpha1.CFDeployment{}
			err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: deployment}, theirs)
			theirs.Status.Value, theirs.Status.Reason = torporv1alpha1.FinalizedDeployment, torporv1alpha1.CanceledState
			return errors.Join(err, e.Client.Status().Update(t.Context(), theirs))
		})
	}
	alice.awaitStatus(t, http.StatusOK, "/v3/deployments/"+deployment)
	for _, path := range []string{"/v3/packages/" + image, "/v3/droplets/" + droplet, "/v3/deployments/" + deployment} {
		mallory.awaitStatus(t, http.StatusOK, path)
	}
	alice.awaitStatus(t, http.StatusOK, "/v3/packages/another-"+seen)
	// The cache index returns objects in random order, so one request would not be enough.
	for range 20 {
		for runs, row := range map[string]struct {
			caller   caller
			strategy string
		}{"shop:1": {alice, "rolling"}, "hers:1": {mallory, "canary"}} {
			row.caller.expect(t, http.StatusOK, "GET /v3/packages/"+image, "", "data.image="+runs)
			row.caller.expect(t, http.StatusOK, "GET /v3/droplets/"+droplet, "", "image="+runs)
			row.caller.expect(t, http.StatusOK, "GET /v3/deployments/"+deployment, "", "strategy="+row.strategy)
		}
	}
	// A package with a unique name belongs to the app in its own space. Alice also has access to an older app of the
	// same name in another space.
	made := alice.expect(t, http.StatusCreated, "POST /v3/builds", `{"package":{"guid":"another-`+seen+`"}}`).field(t, "guid")
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: seen, Name: made}, &korifiv1alpha1.CFBuild{}))
	testenv.Eventually(t, "the package has its droplet", func() error {
		r := alice.get(t, "/v3/packages/another-"+seen+"/droplets")
		return testenv.ErrorIf(r.status != http.StatusOK || r.field(t, "resources#") != "1", "found %d %s", r.status, r.body)
	})
}
