// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// TestConversationsHoldWithRealControllers replays the conversations of package internal/cf/api with real
// controllers. It omits two: the one about logs expects a Pod that no node runs (TestRecentLogs has nodes), and the
// other expects a Pod to be missing, but real controllers replace a deleted Pod too soon.
func TestConversationsHoldWithRealControllers(t *testing.T) {
	w := shared.Get(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "internal", "cf", "api", "testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected conversations, found %d (%v)", len(files), err)
	}
	without := map[string]bool{"logs": true, "restart-app-instance": true}
	alice := w.newCaller(t, "alice")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if without[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			space := w.createSpace(t)
			conversation.ReplayFile(t, file, conversation.APIEnvironment{
				URL: w.url, Vars: map[string]string{"space": space, "org": w.org, "url": w.url},
				Send: func(t *testing.T, method, path, body string) conversation.APIAnswer {
					t.Helper()
					a, err := alice.send(t.Context(), method, path, body)
					testenv.ExpectNoError(t, err)
					return a
				},
				App: func(t *testing.T, name string, instances int32, state string) string {
					t.Helper()
					return alice.createApp(t, space, name, instances, state)
				},
				Pod: func(t *testing.T, _, index string) {
					t.Helper()
					t.Fatalf("expected no conversation that needs the Pod %s", index)
				},
			})
		})
	}
}

const started = string(korifiv1alpha1.StartedState)

// TestNameIsFreeOnceTheAppIsDeleted creates and deletes apps with one name in several spaces. The garbage collector
// deletes the Lease of each deleted app while the next app claims the name.
func TestNameIsFreeOnceTheAppIsDeleted(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	const spaces, apps = 6, 8
	alice := w.newCaller(t, "alice")
	var users sync.WaitGroup
	for range spaces {
		space := w.createSpace(t)
		users.Go(func() {
			for range apps {
				if err := alice.createAndDelete(t, space, "shop"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	users.Wait()
}

// createAndDelete creates an app without instances, and returns when the job of its deletion is complete.
func (c caller) createAndDelete(t *testing.T, space, name string) error {
	t.Helper()
	made, err := c.send(t.Context(), "POST", "/v3/apps", `{"name":"`+name+`","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`)
	if err != nil || made.Status != http.StatusCreated {
		return fmt.Errorf("expected the app %s to be created, found %+v (%w)", name, made, err)
	}
	app := conversation.JSONField(t, made.Body, "guid")
	if deleted, err := c.send(t.Context(), "DELETE", "/v3/apps/"+app, ""); err != nil || deleted.Status != http.StatusAccepted {
		return fmt.Errorf("expected the app %s to be deleted, found %+v (%w)", name, deleted, err)
	}
	// Each of these requests is answered when the job is complete, or after some seconds.
	for range 100 {
		job, err := c.send(t.Context(), "GET", "/v3/jobs/app.delete~"+app, "")
		if err != nil || job.Status != http.StatusOK {
			return fmt.Errorf("expected the job of the deletion, found %+v (%w)", job, err)
		}
		if conversation.JSONField(t, job.Body, "state") == "COMPLETE" {
			return nil
		}
	}
	return errors.New("expected the app " + name + " to be deleted, found it after 100 requests")
}

func TestRestartLeavesOnlyTheNewRevision(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, started)
	for i := range 3 {
		alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/stop", "")
		alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
		alice.waitUntilRunning(t, app, 2)
		w.waitForOnlyRevision(t, space, app, strconv.Itoa(i+1), 2)
	}
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.waitUntilRunning(t, app, 2)
	w.waitForOnlyRevision(t, space, app, "4", 2)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/stop", "")
	w.waitForOnlyRevision(t, space, app, "", 0)
}

func TestRollingRestartLeavesOnlyTheNewRevision(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 3, started)
	path := alice.createDeployment(t, app, "DEPLOYED")
	w.waitForOnlyRevision(t, space, app, "1", 3)
	if a := alice.expectStatus(t, http.StatusOK, "GET", path, ""); conversation.JSONField(t, a, "revision.version") != "1" {
		t.Errorf("found %s, want revision 1", a)
	}
}

func (c caller) createDeployment(t *testing.T, app, want string) (path string) {
	t.Helper()
	made := c.expectStatus(t, http.StatusCreated, "POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+app+`"}}}}`)
	path = "/v3/deployments/" + conversation.JSONField(t, made, "guid")
	c.waitForDeployment(t, path, want)
	return path
}

func (c caller) waitForDeployment(t *testing.T, deployment, want string) {
	t.Helper()
	testenv.Eventually(t, "the deployment is "+want, func() error {
		a := c.expectStatus(t, http.StatusOK, "GET", deployment, "")
		return testenv.ErrorIf(conversation.JSONField(t, a, "status.reason") != want, "found %s", a)
	})
}

func TestCancelledDeploymentLeavesTheOldRevision(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, started)
	web := "/v3/apps/" + app + "/processes/web"
	alice.expectStatus(t, http.StatusOK, "PATCH", web, `{"command":"HOLLOW_START=1h ./never-ready"}`)
	path := alice.createDeployment(t, app, "DEPLOYING")
	testenv.Eventually(t, "the new revision has a Pod next to the old ones", func() error {
		found := w.listPodRevisions(t, space, app)
		return testenv.ErrorIf(len(found) != 3, "found %d", len(found))
	})
	alice.expectStatus(t, http.StatusOK, "POST", path+"/actions/cancel", "")
	alice.waitForDeployment(t, path, "CANCELED")
	alice.waitUntilRunning(t, app, 2)
	w.waitForOnlyRevision(t, space, app, "0", 2)
	alice.expectStatus(t, http.StatusNoContent, "DELETE", web+"/instances/1", "")
	alice.waitUntilRunning(t, app, 2)
}

// Variables that are set for the next revision do not affect instances of the current one, even after a restart of
// an instance.
func TestRestartedInstanceKeepsItsEnvironment(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, "STOPPED")
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/environment_variables", `{"var":{"COLOUR":"red"}}`)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	alice.waitUntilRunning(t, app, 1)
	before := w.listPodUIDs(t, space, app)["0"]
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/environment_variables", `{"var":{"COLOUR":"blue"}}`)
	alice.expectStatus(t, http.StatusNoContent, "DELETE", "/v3/apps/"+app+"/processes/web/instances/0", "")
	testenv.Eventually(t, "another instance has the environment of its revision", func() error {
		if now := w.listPodUIDs(t, space, app)["0"]; now == "" || now == before {
			return fmt.Errorf("found the instance %q", now)
		}
		found, err := w.readVariable(t.Context(), space, app, "COLOUR")
		return errors.Join(err, testenv.ErrorIf(found != "red", "found %q", found))
	})
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	testenv.Eventually(t, "the next revision has the new variables", func() error {
		found, err := w.readVariable(t.Context(), space, app, "COLOUR")
		return errors.Join(err, testenv.ErrorIf(found != "blue", "found %q", found))
	})
}

// readVariable returns the value of a variable in the only instance of an app.
func (w *env) readVariable(ctx context.Context, space, app, name string) (string, error) {
	var pods corev1.PodList
	if err := w.Client.List(ctx, &pods, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}); err != nil || len(pods.Items) != 1 {
		return "", fmt.Errorf("expected one Pod, found %d (%w)", len(pods.Items), err)
	}
	for _, variable := range pods.Items[0].Spec.Containers[0].Env {
		if variable.Name != name || variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
			continue
		}
		var secret corev1.Secret
		from := variable.ValueFrom.SecretKeyRef
		err := w.Client.Get(ctx, client.ObjectKey{Namespace: space, Name: from.Name}, &secret)
		return string(secret.Data[from.Key]), err
	}
	return "", fmt.Errorf("expected the variable %s of a Secret, found none", name)
}

func TestScaling(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, started)
	for _, n := range []int{4, 2, 0, 1} {
		alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/processes/web/actions/scale", fmt.Sprintf(`{"instances":%d}`, n))
		w.waitForOnlyRevision(t, space, app, "0", n)
		alice.waitUntilRunning(t, app, n)
	}
}

func TestOneInstanceOfTwelveIsRestarted(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	const twelve = 12
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", twelve, started)
	before := w.listPodUIDs(t, space, app)
	for _, index := range []string{"1", "11"} {
		alice.expectStatus(t, http.StatusNoContent, "DELETE", "/v3/apps/"+app+"/processes/web/instances/"+index, "")
	}
	testenv.Eventually(t, "both instances have been replaced", func() error {
		now := w.listPodUIDs(t, space, app)
		if len(now) != twelve {
			return fmt.Errorf("found %d", len(now))
		}
		maps.DeleteFunc(now, func(index, uid string) bool { return before[index] == uid })
		return testenv.ErrorIf(len(now) != 2 || now["1"] == "" || now["11"] == "", "found the instances %v", now)
	})
	alice.expectStatus(t, http.StatusNotFound, "DELETE", "/v3/apps/"+app+"/processes/web/instances/12", "")
	alice.waitUntilRunning(t, app, twelve)
}

func (w *env) listPodUIDs(t *testing.T, space, app string) map[string]string {
	t.Helper()
	var list corev1.PodList
	testenv.ExpectNoError(t, w.Client.List(t.Context(), &list, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}))
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Labels[appsv1.PodIndexLabel]] = string(list.Items[i].UID)
	}
	return found
}

func TestClientThatGoesAwayLeavesNoAppStopped(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	const points = 20
	rounds := testenv.CountRepetitions(2, 10)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, started)
	whole := alice.timeRestart(t, app)
	aborted := 0
	for i := range rounds * points {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i%points+1)/(points/4)) // From a fraction to several times the duration of a request.
		if _, err := alice.send(ctx, "POST", "/v3/apps/"+app+"/actions/restart", ""); err != nil {
			aborted++
		}
		cancel()
		if found := w.getApp(t, space, app).Spec.DesiredState; found != korifiv1alpha1.StartedState {
			t.Fatalf("after %d: found it %s", i, found)
		}
	}
	if aborted == 0 {
		t.Error("expected the client to go away at least once, found that it never did")
	}
	t.Logf("the client disconnected in %d of %d requests", aborted, rounds*points)
	alice.waitUntilRunning(t, app, 1)
	w.waitForOnlyRevision(t, space, app, w.getApp(t, space, app).Annotations[korifiv1alpha1.RevisionAnnotation], 1)
}

// timeRestart returns the duration of the fastest of several requests for a restart.
func (c caller) timeRestart(t *testing.T, app string) time.Duration {
	t.Helper()
	const requests = 5
	fastest := time.Hour
	for range requests {
		begun := time.Now()
		c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
		fastest = min(fastest, time.Since(begun))
	}
	return fastest
}

func (w *env) getApp(t *testing.T, space, name string) *korifiv1alpha1.CFApp {
	t.Helper()
	var a korifiv1alpha1.CFApp
	testenv.ExpectNoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, &a))
	return &a
}

func TestCallersWithoutRightsAreRefused(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice, bob, mallory := w.createSpace(t), w.newCaller(t, "alice"), w.newCaller(t, "bob"), w.newCaller(t, "mallory")
	app := alice.createApp(t, space, "shop", 1, started)
	before := w.listPodUIDs(t, space, app)
	body := `{"relationships":{"app":{"data":{"guid":"` + app + `"}}}}`
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v3/apps/" + app + "/actions/stop", ""},
		{"POST", "/v3/apps/" + app + "/actions/restart", ""},
		{"POST", "/v3/deployments", body},
		{"DELETE", "/v3/apps/" + app + "/processes/web/instances/0", ""},
		{"DELETE", "/v3/apps/" + app, ""},
	} {
		bob.expectStatus(t, http.StatusForbidden, request.method, request.path, request.body)
		mallory.expectStatus(t, http.StatusNotFound, request.method, request.path, request.body)
	}
	if after := w.listPodUIDs(t, space, app); !maps.Equal(before, after) {
		t.Errorf("found the Pods %v, want %v", after, before)
	}
}

func TestDeletedAppDeletesItsObjects(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, started)
	alice.createDeployment(t, app, "DEPLOYED")
	a, err := alice.send(t.Context(), http.MethodDelete, "/v3/apps/"+app, "")
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("found %d %s (%v), want a job", a.Status, a.Body, err)
	}
	testenv.Eventually(t, "the job has ended", func() error {
		body := alice.expectStatus(t, http.StatusOK, "GET", strings.TrimPrefix(a.Location, w.url), "")
		return testenv.ErrorIf(conversation.JSONField(t, body, "state") != "COMPLETE", "found %s", body)
	})
	testenv.Eventually(t, "no object is left", func() error {
		var lrps eiriniv1.LRPList
		var sets appsv1.StatefulSetList
		in := client.InNamespace(space)
		if err := errors.Join(w.Client.List(t.Context(), &lrps, in), w.Client.List(t.Context(), &sets, in)); err != nil {
			return err
		}
		pods := w.listPodRevisions(t, space, app)
		return testenv.ErrorIf(len(pods)+len(lrps.Items)+len(sets.Items) > 0, "found %d Pods, %d LRPs, %d StatefulSets", len(pods), len(lrps.Items), len(sets.Items))
	})
}

// TestOrgsAndSpacesComeAndGo performs cf create-org, cf create-space and cf delete-space; the space contains another
// user's app.
func TestOrgsAndSpacesComeAndGo(t *testing.T) {
	w := shared.Get(t)
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "ada"}})
	w.ExpectCreated(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "ada"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "torpor-cf-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "ada"}},
	})
	w.awaitMayList(t, "ada", "default")
	ada, alice := w.newCaller(t, "ada"), w.newCaller(t, "alice")
	guid := func(body string) string { return conversation.JSONField(t, body, "guid") }
	org := guid(ada.expectStatus(t, http.StatusCreated, "POST", "/v3/organizations", `{"name":"second"}`))
	space := guid(ada.expectStatus(t, http.StatusCreated, "POST", "/v3/spaces", `{"name":"stage","relationships":{"organization":{"data":{"guid":"`+org+`"}}}}`))
	user := `"user":{"data":{"username":"system:serviceaccount:` + system + `:alice"}}`
	ada.expectStatus(t, http.StatusCreated, "POST", "/v3/roles", `{"type":"space_developer","relationships":{`+user+`,"space":{"data":{"guid":"`+space+`"}}}}`)
	testenv.Eventually(t, "alice sees the space", func() error {
		a := alice.expectStatus(t, http.StatusOK, "GET", "/v3/spaces?names=stage", "")
		return testenv.ErrorIf(conversation.JSONField(t, a, "resources.0.guid") != space, "found %s", a)
	})
	alice.createApp(t, space, "shop", 1, started)
	alice.expectStatus(t, http.StatusForbidden, "DELETE", "/v3/spaces/"+space, "")
	a, err := ada.send(t.Context(), http.MethodDelete, "/v3/spaces/"+space, "")
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("found %d %s (%v), want a job", a.Status, a.Body, err)
	}
	testenv.Eventually(t, "the job has ended", func() error {
		body := ada.expectStatus(t, http.StatusOK, "GET", strings.TrimPrefix(a.Location, w.url), "")
		return testenv.ErrorIf(conversation.JSONField(t, body, "state") != "COMPLETE", "found %s", body)
	})
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: space}, &corev1.Namespace{}); !k8serrors.IsNotFound(err) {
		t.Errorf("found %v, want no namespace left once the job is over", err)
	}
}

// TestDeletionWaitsForSlowPods deletes an app whose Pods end slowly; the job must not end before the Pods.
func TestDeletionWaitsForSlowPods(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	const end = 4 * time.Second
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, "STOPPED")
	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/processes/web", `{"command":"HOLLOW_STOP=`+end.String()+` ./slow"}`)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
	alice.waitUntilRunning(t, app, 2)
	begin := time.Now()
	alice.expectStatus(t, http.StatusAccepted, "DELETE", "/v3/apps/"+app, "")
	testenv.Eventually(t, "the job has ended", func() error {
		left := len(w.listPodRevisions(t, space, app))
		body := alice.expectStatus(t, http.StatusOK, "GET", "/v3/jobs/app.delete~"+app, "")
		if conversation.JSONField(t, body, "state") == "COMPLETE" {
			return nil
		}
		if left == 0 {
			t.Logf("the job is still %s when no Pod is left", body)
		}
		return errors.New("found " + body)
	})
	if left := w.listPodRevisions(t, space, app); len(left) > 0 || time.Since(begin) < end {
		t.Errorf("found the job over after %s with the Pods %v, want it over when they are gone", time.Since(begin), left)
	}
	alice.expectStatus(t, http.StatusNotFound, "GET", "/v3/apps/"+app, "")
}

// If the API is killed in the middle of a restart, the app was restarted once or not at all, and is STARTED. A new
// API process reports the same.
func TestAPIIsKilledDuringRestarts(t *testing.T) {
	w := shared.Get(t)
	const points = 6
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, started)
	begun := time.Now()
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	whole := time.Since(begun)
	began := 0
	for i := range points {
		before := w.requireStartedRevision(t, space, app)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = alice.send(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "") // The request may fail, because the API is killed.
		}()
		moment, cancel := context.WithTimeout(t.Context(), whole*time.Duration(2*i)/points)
		<-moment.Done()
		cancel()
		w.api.KillAtOnce(t)
		<-answered
		after := w.requireStartedRevision(t, space, app)
		if after != before && after != before+1 {
			t.Errorf("found revision %d after %d, want at most one more", after, before)
		}
		began += after - before
		w.http.CloseIdleConnections()
		w.startAPI(w.tb, testenv.TorporPath(w.tb))
	}
	t.Logf("%d of %d restarts had begun when the API was killed", began, points)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.waitUntilRunning(t, app, 1)
	w.waitForOnlyRevision(t, space, app, strconv.Itoa(began+2), 1)
}

func (w *env) requireStartedRevision(t *testing.T, space, name string) int {
	t.Helper()
	a := w.getApp(t, space, name)
	if a.Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Fatalf("found the app %s, want it STARTED", a.Spec.DesiredState)
	}
	n, err := strconv.Atoi(a.Annotations[korifiv1alpha1.RevisionAnnotation])
	testenv.ExpectNoError(t, err)
	return n
}

// TestManyRestartsLeaveOneRevisionEach repeats a stop and a start within milliseconds, as `cf restart` sends them. Each
// time the revision must increase by exactly one, the LRP must have a new name, no Pod of an older revision may be left
// when the app runs, and until then stats must never show an instance as running.
func TestManyRestartsLeaveOneRevisionEach(t *testing.T) {
	t.Parallel()
	const instances = 2
	rounds := testenv.CountRepetitions(15, 200)
	w := shared.Get(t)
	space, alice, bob := w.createSpace(t), w.newCaller(t, "alice"), w.newCaller(t, "bob")
	app := alice.createApp(t, space, "shop", instances, started)
	path := "/v3/apps/" + app
	alice.expectStatus(t, http.StatusOK, "PATCH", path+"/processes/web", `{"command":"HOLLOW_STOP=20ms ./shop"}`)
	names := map[string]bool{w.requireOnlyLRP(t, space, app, "0"): true}
	asked := 0
	for round := 1; round <= rounds; round++ {
		revision := strconv.Itoa(round)
		for _, action := range []string{"stop", "start"} {
			answer := alice.expectStatus(t, http.StatusOK, "POST", path+"/actions/"+action, "")
			if found := conversation.JSONField(t, answer, "revision"); found != revision {
				t.Fatalf("round %s: found revision %s after the %s", revision, found, action)
			}
		}
		// Bob has started nothing, so the API does not delay his stats: he sees every intermediate state.
		testenv.Eventually(t, "revision "+revision+" runs", func() error {
			asked++
			running := bob.countTrulyRunning(t, space, app, revision, instances)
			return testenv.ErrorIf(running != instances, "found %d instances running", running)
		})
		for name, found := range w.listPodRevisions(t, space, app) {
			if found != revision {
				t.Fatalf("round %s: found the Pod %s of revision %s", revision, name, found)
			}
		}
		name := w.requireOnlyLRP(t, space, app, revision)
		if names[name] {
			t.Fatalf("round %s: found the LRP %s once more", revision, name)
		}
		names[name] = true
	}
	t.Logf("%d restarts had %d LRPs; stats were requested %d times", rounds, len(names)-1, asked)
}

// countTrulyRunning requests stats and returns how many rows show an instance as running: each must be a ready Pod
// of the revision. There must always be as many rows as wanted instances.
func (c caller) countTrulyRunning(t *testing.T, space, app, revision string, instances int) (running int) {
	t.Helper()
	var stats struct {
		Resources []struct {
			Index int                          `json:"index"`
			State korifiv1alpha1.InstanceState `json:"state"`
		} `json:"resources"`
	}
	body := c.expectStatus(t, http.StatusOK, "GET", "/v3/apps/"+app+"/processes/web/stats", "")
	if err := json.Unmarshal([]byte(body), &stats); err != nil || len(stats.Resources) != instances {
		t.Fatalf("found %s (%v), want %d rows", body, err, instances)
	}
	var pods corev1.PodList
	of := client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app, korifiv1alpha1.VersionLabel: revision}
	testenv.ExpectNoError(t, c.Client.List(t.Context(), &pods, client.InNamespace(space), of))
	ready := map[string]bool{}
	for i := range pods.Items {
		for _, is := range pods.Items[i].Status.Conditions {
			if is.Type == corev1.PodReady && is.Status == corev1.ConditionTrue {
				ready[pods.Items[i].Labels[appsv1.PodIndexLabel]] = true
			}
		}
	}
	for _, row := range stats.Resources {
		if row.State != korifiv1alpha1.RunningInstance {
			continue
		}
		if running++; !ready[strconv.Itoa(row.Index)] {
			t.Fatalf("instance %d is shown as running, but no Pod of revision %s is ready", row.Index, revision)
		}
	}
	return running
}

// requireOnlyLRP returns the name of the app's LRP. There must be exactly one, and it must be of the given revision.
func (w *env) requireOnlyLRP(t *testing.T, space, app, revision string) string {
	t.Helper()
	var lrps eiriniv1.LRPList
	testenv.ExpectNoError(t, w.Client.List(t.Context(), &lrps, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}))
	if len(lrps.Items) != 1 || lrps.Items[0].Spec.Version != revision {
		t.Fatalf("found %d LRPs, want one of revision %s", len(lrps.Items), revision)
	}
	return lrps.Items[0].Name
}
