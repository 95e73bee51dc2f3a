// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/conversation"
)

// TestClient runs on one control plane; each story has a space of its own.
func TestClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	t.Run("conversations", w.testConversations)
	t.Run("a restart leaves only the new revision", w.testRestart)
	t.Run("a rolling restart leaves only the new revision", w.testRolling)
	t.Run("a cancelled deployment leaves the old one", w.testCancelled)
	t.Run("scaling", w.testScale)
	t.Run("one instance of twelve", w.testInstance)
	t.Run("a client that goes away", w.testAborts)
	t.Run("who may not", w.testRefused)
	t.Run("deleting takes everything", w.testDelete)
	t.Run("deleting waits for Pods that take their time", w.testSlowEnd)
	t.Run("orgs and spaces come and go", w.testPlaces)
	t.Run("the API is killed", w.testKilled) // Last, because it is another one afterwards.
}

// testConversations holds the same conversations as package cfapi, with real controllers. Two are left out: hollow nodes
// keep no logs, and a Pod that was deleted is replaced before a second request can miss it.
func (w *world) testConversations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "cfapi", "testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("expected conversations, found %d (%v)", len(files), err)
	}
	without := map[string]bool{"logs": true, "restart-app-instance": true}
	alice := w.caller(t, "alice")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if without[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			space := w.space(t)
			conversation.ReplayFile(t, file, conversation.APIEnvironment{
				URL: w.url, Vars: map[string]string{"space": space, "org": w.org, "url": w.url},
				Send: func(t *testing.T, method, path, body string) conversation.APIAnswer {
					t.Helper()
					a, err := alice.try(t.Context(), method, path, body)
					if err != nil {
						t.Fatal(err)
					}
					return a
				},
				App: func(t *testing.T, name string, instances int32, state string) string {
					t.Helper()
					return alice.app(t, space, name, instances, state)
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

func (w *world) testRestart(t *testing.T) {
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 2, started)
	for i := range 3 {
		alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/stop", "")
		alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/start", "")
		alice.runs(t, app, 2)
		w.only(t, space, app, strconv.Itoa(i+1), 2)
	}
	alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.runs(t, app, 2)
	w.only(t, space, app, "4", 2)
	alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/stop", "")
	w.only(t, space, app, "", 0)
}

func (w *world) testRolling(t *testing.T) {
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 3, started)
	path := alice.deploy(t, app, "DEPLOYED")
	w.only(t, space, app, "1", 3)
	if a := alice.must(t, http.StatusOK, "GET", path, ""); conversation.JSONField(t, a, "revision.version") != "1" {
		t.Errorf("found %s, want revision 1", a)
	}
}

// deploy makes a rolling deployment and waits until it is as wanted.
func (c caller) deploy(t *testing.T, app, want string) (path string) {
	t.Helper()
	made := c.must(t, http.StatusCreated, "POST", "/v3/deployments", `{"strategy":"rolling","relationships":{"app":{"data":{"guid":"`+app+`"}}}}`)
	path = "/v3/deployments/" + conversation.JSONField(t, made, "guid")
	c.becomes(t, path, want)
	return path
}

func (c caller) becomes(t *testing.T, deployment, want string) {
	t.Helper()
	testenv.Eventually(t, "the deployment is "+want, func() error {
		if a := c.must(t, http.StatusOK, "GET", deployment, ""); conversation.JSONField(t, a, "status.reason") != want {
			return errors.New("found " + a)
		}
		return nil
	})
}

func (w *world) testCancelled(t *testing.T) {
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 2, started)
	web := "/v3/apps/" + app + "/processes/web"
	alice.must(t, http.StatusOK, "PATCH", web, `{"command":"HOLLOW_START=1h ./never-ready"}`)
	path := alice.deploy(t, app, "DEPLOYING")
	testenv.Eventually(t, "the new revision has a Pod beside the old ones", func() error {
		if found := w.pods(t, space, app); len(found) != 3 {
			return fmt.Errorf("found %d", len(found))
		}
		return nil
	})
	alice.must(t, http.StatusOK, "POST", path+"/actions/cancel", "")
	alice.becomes(t, path, "CANCELED")
	alice.runs(t, app, 2)
	w.only(t, space, app, "0", 2)
	alice.must(t, http.StatusNoContent, "DELETE", web+"/instances/1", "")
	alice.runs(t, app, 2)
}

func (w *world) testScale(t *testing.T) {
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 1, started)
	for _, n := range []int{4, 2, 0, 1} {
		alice.must(t, http.StatusAccepted, "POST", "/v3/apps/"+app+"/processes/web/actions/scale", fmt.Sprintf(`{"instances":%d}`, n))
		w.only(t, space, app, "0", n)
		alice.runs(t, app, n)
	}
}

func (w *world) testInstance(t *testing.T) {
	const twelve = 12
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", twelve, started)
	before := w.uids(t, space, app)
	for _, index := range []string{"1", "11"} {
		alice.must(t, http.StatusNoContent, "DELETE", "/v3/apps/"+app+"/processes/web/instances/"+index, "")
	}
	testenv.Eventually(t, "those two are others", func() error {
		now := w.uids(t, space, app)
		if len(now) != twelve {
			return fmt.Errorf("found %d", len(now))
		}
		maps.DeleteFunc(now, func(index, uid string) bool { return before[index] == uid })
		if len(now) != 2 || now["1"] == "" || now["11"] == "" {
			return fmt.Errorf("found others at %v", now)
		}
		return nil
	})
	alice.must(t, http.StatusNotFound, "DELETE", "/v3/apps/"+app+"/processes/web/instances/12", "")
	alice.runs(t, app, twelve)
}

// uids are those of an app's Pods by index.
func (w *world) uids(t *testing.T, space, app string) map[string]string {
	t.Helper()
	var list corev1.PodList
	if err := w.Client.List(t.Context(), &list, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Labels[appsv1.PodIndexLabel]] = string(list.Items[i].UID)
	}
	return found
}

func (w *world) testAborts(t *testing.T) {
	const rounds, points = 10, 20
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 1, started)
	begun := time.Now()
	alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	whole := time.Since(begun)
	aborted := 0
	for i := range rounds * points {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i%points+1)/(points/4)) // Up to much later than one took.
		if _, err := alice.try(ctx, "POST", "/v3/apps/"+app+"/actions/restart", ""); err != nil {
			aborted++
		}
		cancel()
		if found := w.app(t, space, app).Spec.DesiredState; found != korifiv1alpha1.StartedState {
			t.Fatalf("after %d: found it %s", i, found)
		}
	}
	if aborted == 0 {
		t.Error("expected the client to go away at least once, found that it never did")
	}
	t.Logf("the client went away %d times of %d", aborted, rounds*points)
	alice.runs(t, app, 1)
	w.only(t, space, app, w.app(t, space, app).Annotations[korifiv1alpha1.RevisionAnnotation], 1)
}

func (w *world) app(t *testing.T, space, name string) *korifiv1alpha1.CFApp {
	t.Helper()
	var a korifiv1alpha1.CFApp
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

func (w *world) testRefused(t *testing.T) {
	space, alice, bob, mallory := w.space(t), w.caller(t, "alice"), w.caller(t, "bob"), w.caller(t, "mallory")
	app := alice.app(t, space, "shop", 1, started)
	before := w.uids(t, space, app)
	body := `{"relationships":{"app":{"data":{"guid":"` + app + `"}}}}`
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v3/apps/" + app + "/actions/stop", ""},
		{"POST", "/v3/apps/" + app + "/actions/restart", ""},
		{"POST", "/v3/deployments", body},
		{"DELETE", "/v3/apps/" + app + "/processes/web/instances/0", ""},
		{"DELETE", "/v3/apps/" + app, ""},
	} {
		bob.must(t, http.StatusForbidden, request.method, request.path, request.body)
		mallory.must(t, http.StatusNotFound, request.method, request.path, request.body)
	}
	if after := w.uids(t, space, app); !maps.Equal(before, after) {
		t.Errorf("found the Pods %v, want %v", after, before)
	}
}

func (w *world) testDelete(t *testing.T) {
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 2, started)
	alice.deploy(t, app, "DEPLOYED")
	a, err := alice.try(t.Context(), http.MethodDelete, "/v3/apps/"+app, "")
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("found %d %s (%v), want a job", a.Status, a.Body, err)
	}
	testenv.Eventually(t, "the job is over", func() error {
		if body := alice.must(t, http.StatusOK, "GET", strings.TrimPrefix(a.Location, w.url), ""); conversation.JSONField(t, body, "state") != "COMPLETE" {
			return errors.New("found " + body)
		}
		return nil
	})
	testenv.Eventually(t, "nothing is left", func() error {
		var lrps eiriniv1.LRPList
		var sets appsv1.StatefulSetList
		in := client.InNamespace(space)
		if err := errors.Join(w.Client.List(t.Context(), &lrps, in), w.Client.List(t.Context(), &sets, in)); err != nil {
			return err
		}
		if pods := w.pods(t, space, app); len(pods)+len(lrps.Items)+len(sets.Items) > 0 {
			return fmt.Errorf("found %d Pods, %d LRPs, %d StatefulSets", len(pods), len(lrps.Items), len(sets.Items))
		}
		return nil
	})
}
