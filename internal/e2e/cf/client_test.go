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

// TestConversationsHoldWithRealControllers holds the same conversations as package internal/cf/api, with real controllers. Two are left out: hollow nodes
// keep no logs, and a Pod that was deleted is replaced before a second request can miss it.
func TestConversationsHoldWithRealControllers(t *testing.T) {
	w := shared.Get(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "cf", "api", "testdata", "*.txt"))
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
					if err != nil {
						t.Fatal(err)
					}
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

func TestRestartLeavesOnlyTheNewRevision(t *testing.T) {
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
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 3, started)
	path := alice.createDeployment(t, app, "DEPLOYED")
	w.waitForOnlyRevision(t, space, app, "1", 3)
	if a := alice.expectStatus(t, http.StatusOK, "GET", path, ""); conversation.JSONField(t, a, "revision.version") != "1" {
		t.Errorf("found %s, want revision 1", a)
	}
}

// createDeployment makes a rolling deployment and waits until it is as wanted.
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
		if a := c.expectStatus(t, http.StatusOK, "GET", deployment, ""); conversation.JSONField(t, a, "status.reason") != want {
			return errors.New("found " + a)
		}
		return nil
	})
}

func TestCancelledDeploymentLeavesTheOldRevision(t *testing.T) {
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, started)
	web := "/v3/apps/" + app + "/processes/web"
	alice.expectStatus(t, http.StatusOK, "PATCH", web, `{"command":"HOLLOW_START=1h ./never-ready"}`)
	path := alice.createDeployment(t, app, "DEPLOYING")
	testenv.Eventually(t, "the new revision has a Pod beside the old ones", func() error {
		if found := w.listPodRevisions(t, space, app); len(found) != 3 {
			return fmt.Errorf("found %d", len(found))
		}
		return nil
	})
	alice.expectStatus(t, http.StatusOK, "POST", path+"/actions/cancel", "")
	alice.waitForDeployment(t, path, "CANCELED")
	alice.waitUntilRunning(t, app, 2)
	w.waitForOnlyRevision(t, space, app, "0", 2)
	alice.expectStatus(t, http.StatusNoContent, "DELETE", web+"/instances/1", "")
	alice.waitUntilRunning(t, app, 2)
}

func TestScaling(t *testing.T) {
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, started)
	for _, n := range []int{4, 2, 0, 1} {
		alice.expectStatus(t, http.StatusAccepted, "POST", "/v3/apps/"+app+"/processes/web/actions/scale", fmt.Sprintf(`{"instances":%d}`, n))
		w.waitForOnlyRevision(t, space, app, "0", n)
		alice.waitUntilRunning(t, app, n)
	}
}

func TestOneInstanceOfTwelveIsRestarted(t *testing.T) {
	w := shared.Get(t)
	const twelve = 12
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", twelve, started)
	before := w.listPodUIDs(t, space, app)
	for _, index := range []string{"1", "11"} {
		alice.expectStatus(t, http.StatusNoContent, "DELETE", "/v3/apps/"+app+"/processes/web/instances/"+index, "")
	}
	testenv.Eventually(t, "those two are others", func() error {
		now := w.listPodUIDs(t, space, app)
		if len(now) != twelve {
			return fmt.Errorf("found %d", len(now))
		}
		maps.DeleteFunc(now, func(index, uid string) bool { return before[index] == uid })
		if len(now) != 2 || now["1"] == "" || now["11"] == "" {
			return fmt.Errorf("found others at %v", now)
		}
		return nil
	})
	alice.expectStatus(t, http.StatusNotFound, "DELETE", "/v3/apps/"+app+"/processes/web/instances/12", "")
	alice.waitUntilRunning(t, app, twelve)
}

// listPodUIDs returns those of an app's Pods by index.
func (w *env) listPodUIDs(t *testing.T, space, app string) map[string]string {
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

func TestClientThatGoesAwayLeavesNoAppStopped(t *testing.T) {
	w := shared.Get(t)
	const rounds, points = 10, 20
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 1, started)
	begun := time.Now()
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	whole := time.Since(begun)
	aborted := 0
	for i := range rounds * points {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i%points+1)/(points/4)) // Up to much later than one took.
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
	t.Logf("the client went away %d times of %d", aborted, rounds*points)
	alice.waitUntilRunning(t, app, 1)
	w.waitForOnlyRevision(t, space, app, w.getApp(t, space, app).Annotations[korifiv1alpha1.RevisionAnnotation], 1)
}

func (w *env) getApp(t *testing.T, space, name string) *korifiv1alpha1.CFApp {
	t.Helper()
	var a korifiv1alpha1.CFApp
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: name}, &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

func TestCallersWithoutRightsAreRefused(t *testing.T) {
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

func TestDeletedAppTakesEverythingWithIt(t *testing.T) {
	w := shared.Get(t)
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	app := alice.createApp(t, space, "shop", 2, started)
	alice.createDeployment(t, app, "DEPLOYED")
	a, err := alice.send(t.Context(), http.MethodDelete, "/v3/apps/"+app, "")
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("found %d %s (%v), want a job", a.Status, a.Body, err)
	}
	testenv.Eventually(t, "the job is over", func() error {
		if body := alice.expectStatus(t, http.StatusOK, "GET", strings.TrimPrefix(a.Location, w.url), ""); conversation.JSONField(t, body, "state") != "COMPLETE" {
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
		if pods := w.listPodRevisions(t, space, app); len(pods)+len(lrps.Items)+len(sets.Items) > 0 {
			return fmt.Errorf("found %d Pods, %d LRPs, %d StatefulSets", len(pods), len(lrps.Items), len(sets.Items))
		}
		return nil
	})
}
