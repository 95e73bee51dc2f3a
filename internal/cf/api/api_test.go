// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestAPI(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.controllers = startFakeControllers(t, w)
	t.Run("conversations of the real client", w.testConversations)
	t.Run("who is let in", w.testCredentials)
	t.Run("a group is let in", w.testGroup)
	t.Run("a refusal is quick and changes nothing", w.testRefusals)
	t.Run("race j: a client that goes away leaves no app stopped", w.testAborts)
	t.Run("race g: stats are about the current revision only", w.testStatsAreTrue)
	t.Run("race k: a crash is told at once, with its reason", w.testCrash)
	t.Run("race i: an app of no instances starts at once", w.testNone)
	t.Run("race c: parallel restarts each get a revision", w.testParallel)
	t.Run("a deployment is taken back", w.testCancel)
	t.Run("bodies that make no sense", w.testBodies)
	t.Run("pages", w.testPages)
	t.Run("logs of real Pods", w.testLogs)
	t.Run("jobs", w.testJobs)
	t.Run("two replicas", w.testReplicas)
	t.Run("rights that are taken away", w.testRevoked)
	t.Run("orgs, spaces and roles", w.testAdmin)
	t.Run("clients that are in no hurry", w.testSlow)
	t.Run("an end finishes requests", w.testShutdown)
	t.Run("metrics, and a limit of each caller", w.testMetrics)
	t.Run("race b: without admission a clear 503 and nothing changed", w.testAdmissionDown)
}

func (w *testEnv) testCredentials(t *testing.T) {
	pair := base64.StdEncoding.EncodeToString(slices.Concat(w.Config.CertData, w.Config.KeyData))
	for name, test := range map[string]struct {
		header string
		status int
		says   string
	}{
		"a token":                        {"bearer " + w.requestToken(t, "alice"), http.StatusOK, "alice"},
		"a certificate":                  {"ClientCert " + pair, http.StatusOK, `"kind":"User"`},
		"a certificate in small letters": {"clientcert " + pair, http.StatusOK, `"kind":"User"`},
		"nothing":                        {"", http.StatusUnauthorized, "found none"},
		"a password":                     {"Basic YTpi", http.StatusUnauthorized, "which Kubernetes does not take"},
		"a token of nobody":              {"Bearer nobody", http.StatusUnauthorized, "does not know these credentials"},
		"half a certificate":             {"ClientCert " + base64.StdEncoding.EncodeToString(w.Config.CertData), http.StatusUnauthorized, "expected a certificate and its key"},
		"something else":                 {"Digest x", http.StatusUnauthorized, "found neither"},
	} {
		t.Run(name, func(t *testing.T) {
			a := caller{testEnv: w, authorization: test.header}.get(t, "/whoami")
			if a.status != test.status || !strings.Contains(a.body, test.says) {
				t.Errorf("found %d %s, want %d and %q", a.status, a.body, test.status, test.says)
			}
		})
	}
}

func (w *testEnv) testGroup(t *testing.T) {
	space := w.createSpace(t)
	crowd := w.CreateNamespace(t)
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: crowd, Name: "grace"}})
	group := "system:serviceaccounts:" + crowd
	w.createRoleBinding(t, space, "torpor-space-developer", rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group})
	w.awaitBinding(t, "system:serviceaccount:"+crowd+":grace", []string{group}, space)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StoppedState)
	grace := caller{testEnv: w, authorization: "Bearer " + w.requestTokenOf(t, crowd, "grace")}
	if a := grace.get(t, "/v3/apps"); jsonField(t, a.body, "resources#") != "1" {
		t.Errorf("found %s, want the app", a.body)
	}
	if a := grace.send(t, "POST", "/v3/apps/"+app+"/actions/start", ""); a.status != http.StatusOK {
		t.Errorf("found %d %s, want it started", a.status, a.body)
	}
}

func (w *testEnv) testRefusals(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 2, korifiv1alpha1.StartedState)
	before := w.getApp(t, space, app)
	bob, mallory := w.callerNamed(t, "bob"), w.callerNamed(t, "mallory")
	// A refusal takes milliseconds; the limit is far above what is aimed for, which is 50 ms.
	const slow = 500 * time.Millisecond
	var took []time.Duration
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v3/apps/" + app + "/actions/stop", ""},
		{"POST", "/v3/apps/" + app + "/actions/start", ""},
		{"POST", "/v3/apps/" + app + "/actions/restart", ""},
		{"DELETE", "/v3/apps/" + app, ""},
		{"PATCH", "/v3/apps/" + app, `{"name":"mine"}`},
		{"GET", "/v3/apps/" + app + "/env", ""},
		{"PATCH", "/v3/apps/" + app + "/environment_variables", `{"var":{"A":"b"}}`},
		{"POST", "/v3/apps/" + app + "/processes/web/actions/scale", `{"instances":9}`},
		{"DELETE", "/v3/apps/" + app + "/processes/web/instances/0", ""},
		{"POST", "/v3/deployments", `{"relationships":{"app":{"data":{"guid":"` + app + `"}}}}`},
		{"POST", "/v3/packages", `{"type":"docker","data":{"image":"x"},"relationships":{"app":{"data":{"guid":"` + app + `"}}}}`},
		{"GET", "/api/v1/read/" + app, ""},
	} {
		for range 10 {
			sees, blind := bob.send(t, request.method, request.path, request.body), mallory.send(t, request.method, request.path, request.body)
			if sees.status != http.StatusForbidden || jsonField(t, sees.body, "errors.0.code") != "10003" || sees.took > slow {
				t.Errorf("%s %s as bob: found %d %s after %s, want 403 in no time", request.method, request.path, sees.status, sees.body, sees.took)
			}
			if blind.status != http.StatusNotFound || jsonField(t, blind.body, "errors.0.detail") != "App not found" || blind.took > slow {
				t.Errorf("%s %s as mallory: found %d %s after %s, want 404 in no time", request.method, request.path, blind.status, blind.body, blind.took)
			}
			took = append(took, sees.took, blind.took)
		}
	}
	slices.Sort(took)
	t.Logf("%d refusals: median %s, worst %s", len(took), took[len(took)/2], took[len(took)-1])
	if a := mallory.send(t, "POST", "/v3/spaces/"+space+"/actions/apply_manifest", `applications: [{name: mine}]`); a.status != http.StatusUnprocessableEntity {
		t.Errorf("found %d %s, want no such space", a.status, a.body)
	}
	for _, path := range []string{"/v3/apps", "/v3/processes", "/v3/spaces", "/v3/organizations", "/v3/audit_events", "/v3/deployments"} {
		if a := mallory.get(t, path); a.status != http.StatusOK || jsonField(t, a.body, "resources#") != "0" {
			t.Errorf("%s as mallory: found %d %s, want an empty list", path, a.status, a.body)
		}
	}
	if after := w.getApp(t, space, app); after.ResourceVersion != before.ResourceVersion {
		t.Error("expected the app unchanged, found it changed")
	}
}

func (w *testEnv) getApp(t *testing.T, space, app string) *korifiv1alpha1.CFApp {
	t.Helper()
	var a korifiv1alpha1.CFApp
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: app}, &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

func (w *testEnv) testAborts(t *testing.T) {
	const points, apart = 20, 500 * time.Microsecond
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StartedState)
	alice := w.callerNamed(t, "alice")
	aborted := 0
	for i := range points {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*apart)
		if _, err := alice.try(ctx, "POST", "/v3/apps/"+app+"/actions/restart", ""); err != nil {
			aborted++
		}
		cancel()
		if a := w.getApp(t, space, app); a.Spec.DesiredState != korifiv1alpha1.StartedState {
			t.Fatalf("after %d: found it stopped", i)
		}
	}
	a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/restart", "")
	if a.status != http.StatusOK || w.getApp(t, space, app).Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Errorf("found %d %s, want it restarted", a.status, a.body)
	}
	if aborted == 0 {
		t.Error("expected the client to go away at least once, found that it never did")
	}
}

func (w *testEnv) testStatsAreTrue(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 3, korifiv1alpha1.StartedState)
	alice, bob := w.callerNamed(t, "alice"), w.callerNamed(t, "bob")
	path := "/v3/apps/" + app + "/processes/web/stats"
	if a := bob.get(t, path); jsonField(t, a.body, "resources.2.state") != "RUNNING" {
		t.Fatalf("found %s, want three that run", a.body)
	}
	w.controllers.setFlag(w.controllers.idle, app, true)
	defer w.controllers.setFlag(w.controllers.idle, app, false)
	if a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/restart", ""); jsonField(t, a.body, "revision") != "1" {
		t.Fatalf("found %s, want revision 1", a.body)
	}
	for range 10 {
		a := bob.get(t, path)
		if jsonField(t, a.body, "resources#") != "3" || strings.Contains(a.body, "RUNNING") {
			t.Fatalf("found %s, want three rows of which none runs", a.body)
		}
	}
	waits := make(chan response, 1)
	ctx := t.Context()
	go func() {
		a, err := alice.try(ctx, "GET", path, "")
		if err != nil {
			a.body = err.Error()
		}
		waits <- a
	}()
	w.controllers.setFlag(w.controllers.idle, app, false)
	if a := <-waits; jsonField(t, a.body, "resources.2.state") != "RUNNING" {
		t.Errorf("found %s, want the answer to be held until they run", a.body)
	}
}

func (w *testEnv) testCrash(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 2, korifiv1alpha1.StoppedState)
	w.controllers.setFlag(w.controllers.crashing, app, true)
	alice := w.callerNamed(t, "alice")
	if a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/start", ""); a.status != http.StatusOK {
		t.Fatalf("found %d %s, want it started", a.status, a.body)
	}
	a := alice.get(t, "/v3/apps/"+app+"/processes/web/stats")
	if jsonField(t, a.body, "resources.0.state") != "CRASHED" || jsonField(t, a.body, "resources.1.details") != "exit code 1" {
		t.Errorf("found %s, want two that crashed, and why", a.body)
	}
}

func (w *testEnv) testNone(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 0, korifiv1alpha1.StoppedState)
	alice := w.callerNamed(t, "alice")
	if a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/start", ""); a.status != http.StatusOK {
		t.Fatalf("found %d %s, want it started", a.status, a.body)
	}
	if a := alice.get(t, "/v3/apps/"+app+"/processes/web/stats"); a.status != http.StatusOK || jsonField(t, a.body, "resources#") != "0" || a.took > 5*time.Second {
		t.Errorf("found %d %s after %s, want no rows, at once", a.status, a.body, a.took)
	}
}

func (w *testEnv) testParallel(t *testing.T) {
	const clients = 6
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StartedState)
	alice := w.callerNamed(t, "alice")
	revisions := make([]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			a, err := alice.try(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "")
			if err != nil || a.status != http.StatusOK {
				t.Errorf("found %d %s (%v), want it restarted", a.status, a.body, err)
				return
			}
			revisions[i] = jsonField(t, a.body, "revision")
		})
	}
	group.Wait()
	slices.Sort(revisions)
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(revisions, want) {
		t.Errorf("found revisions %v, want %v", revisions, want)
	}
}

func (w *testEnv) testCancel(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 2, korifiv1alpha1.StartedState)
	w.controllers.setFlag(w.controllers.idle, app, true)
	alice, bob, mallory := w.callerNamed(t, "alice"), w.callerNamed(t, "bob"), w.callerNamed(t, "mallory")
	made := alice.send(t, "POST", "/v3/deployments", `{"relationships":{"app":{"data":{"guid":"`+app+`"}}}}`)
	path := "/v3/deployments/" + jsonField(t, made.body, "guid")
	if made.status != http.StatusCreated || jsonField(t, made.body, "status.reason") != "DEPLOYING" || jsonField(t, made.body, "revision.version") != "1" {
		t.Fatalf("found %d %s, want a deployment that goes on", made.status, made.body)
	}
	for _, test := range []struct {
		name string
		by   caller
		want int
	}{
		{"who may only look", bob, http.StatusForbidden}, {"who may not", mallory, http.StatusNotFound}, {"who may", alice, http.StatusOK},
	} {
		if a := test.by.send(t, "POST", path+"/actions/cancel", ""); a.status != test.want {
			t.Errorf("%s: found %d %s, want %d", test.name, a.status, a.body, test.want)
		}
	}
	if a := bob.get(t, path); jsonField(t, a.body, "status.value") != "FINALIZED" || jsonField(t, a.body, "status.reason") != "CANCELED" {
		t.Errorf("found %s, want it cancelled", a.body)
	}
	if a := alice.send(t, "POST", path+"/actions/cancel", ""); a.status != http.StatusUnprocessableEntity {
		t.Errorf("found %d %s, want no second time", a.status, a.body)
	}
}

func (w *testEnv) testAdmissionDown(t *testing.T) {
	space := w.createSpace(t)
	app := w.createApp(t, space, "shop", 1, korifiv1alpha1.StartedState)
	before := w.getApp(t, space, app)
	alice := w.callerNamed(t, "alice")
	w.admissionDown.Store(true)
	for _, action := range []string{"stop", "restart"} {
		a := alice.send(t, "POST", "/v3/apps/"+app+"/actions/"+action, "")
		if a.status != http.StatusServiceUnavailable || !strings.Contains(jsonField(t, a.body, "errors.0.detail"), "nothing was changed") {
			t.Errorf("%s: found %d %s, want a 503 that says so", action, a.status, a.body)
		}
	}
	w.admissionDown.Store(false)
	if after := w.getApp(t, space, app); after.ResourceVersion != before.ResourceVersion {
		t.Error("expected the app unchanged, found it changed")
	}
	testenv.Eventually(t, "a restart works again", func() error {
		_, err := alice.try(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "")
		return err
	})
}
