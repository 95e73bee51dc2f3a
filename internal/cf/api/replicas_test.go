// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestReplicasAgree sends conflicting requests to two replicas at the same time.
func TestReplicasAgree(t *testing.T) {
	e := shared.Get(t)
	other := e.startReplica(t, 1000)
	space := e.createSpace(t)
	alice := e.callerNamed(t, "alice")
	both := []caller{alice, alice.at(other)}
	t.Run("one of two concurrently created apps with the same name is kept", func(t *testing.T) {
		const rounds = 20
		for i := range rounds {
			name := fmt.Sprintf("app-%d", i)
			made := sendToAll(t, both, "POST /v3/apps", `{"name":"`+name+`","relationships":{"space":{"data":{"guid":"`+space+`"}}}}`, http.StatusCreated)
			if found := e.countAppsNamed(t, space, name); len(made) > 1 || found != len(made) {
				t.Fatalf("%s: found %d apps and %d successful responses, want at most one, and the others undone", name, found, len(made))
			}
		}
	})
	t.Run("one of two apps that are concurrently renamed to the same name gets the name", func(t *testing.T) {
		const rounds = 10
		for i := range rounds {
			var apps [2]string
			for j := range apps {
				body := fmt.Sprintf(`{"name":"from-%d-%d","relationships":{"space":{"data":{"guid":"%s"}}}}`, i, j, space)
				apps[j] = alice.send(t, "POST", "/v3/apps", body).field(t, "guid")
			}
			name := fmt.Sprintf("to-%d", i)
			both[1].awaitStatus(t, http.StatusOK, "/v3/apps/"+apps[1])
			var group sync.WaitGroup
			for j, c := range both {
				group.Go(func() { _, _ = c.try(t.Context(), "PATCH", "/v3/apps/"+apps[j], `{"name":"`+name+`"}`) })
			}
			group.Wait()
			if found := e.countAppsNamed(t, space, name); found > 1 {
				t.Fatalf("%s: found %d apps of this name", name, found)
			}
		}
	})
	t.Run("concurrent restarts are each counted once", func(t *testing.T) {
		app := e.createApp(t, space, "restarted", 1, started)
		both[1].awaitStatus(t, http.StatusOK, "/v3/apps/"+app)
		got := sendToAll(t, both, "POST /v3/apps/"+app+"/actions/restart", "", http.StatusOK)
		if len(got) != 2 || got[0].field(t, "revision") == got[1].field(t, "revision") {
			t.Errorf("found %v, want two revisions", got)
		}
	})
	t.Run("a job has the same state at both replicas", func(t *testing.T) {
		const rounds = 20
		for i := range rounds {
			app := e.createApp(t, space, fmt.Sprintf("deleted-%d", i), 1, stopped)
			both[1].awaitStatus(t, http.StatusOK, "/v3/apps/"+app)
			job := alice.send(t, "DELETE", "/v3/apps/"+app, "").location
			both[1].expect(t, http.StatusOK, "GET "+strings.TrimPrefix(job, e.url), "", "state=COMPLETE")
			both[1].expect(t, http.StatusNotFound, "GET /v3/apps/"+app, "")
		}
	})
	for _, path := range []string{"/v3/apps?order_by=name&space_guids=" + space, "/v3/spaces", "/v3/organizations", "/whoami"} {
		testenv.Eventually(t, "both replicas respond to "+path+" alike", func() error {
			a, b := alice.get(t, path), both[1].get(t, path)
			if strings.ReplaceAll(a.body, e.url, other.url) != b.body {
				return fmt.Errorf("found %s and %s", a.body, b.body)
			}
			return nil
		})
	}
}

// sendToAll sends the same request to all replicas concurrently, and returns the responses with the expected status.
// All other responses must report that the name is taken.
func sendToAll(t *testing.T, replicas []caller, request, body string, status int) (got []response) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	answers := make([]response, len(replicas))
	var group sync.WaitGroup
	for i, c := range replicas {
		group.Go(func() {
			r, err := c.try(t.Context(), method, path, body)
			if err != nil {
				r.body = err.Error()
			}
			answers[i] = r
		})
	}
	group.Wait()
	for _, r := range answers {
		if r.status == status {
			got = append(got, r)
		} else if r.status != http.StatusUnprocessableEntity || !strings.Contains(r.body, "already exists.") {
			t.Errorf("%s: found %d %s, want %d, or that the name is taken", request, r.status, r.body, status)
		}
	}
	return got
}

// TestJobIsHeldUntilItIsDone polls a slow deletion as the caller that started it, as another caller, and as a caller
// without rights.
func TestJobIsHeldUntilItIsDone(t *testing.T) {
	e := shared.Get(t)
	space, app := e.createShop(t, 1, stopped)
	alice, bob, mallory := e.callerNamed(t, "alice"), e.callerNamed(t, "bob"), e.callerNamed(t, "mallory")
	setFinalizers := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers))
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), e.getApp(t, space, app), patch))
	}
	setFinalizers(`["example.com/pods-are-left"]`)
	job := "/v3/jobs/app.delete~" + app
	// The job does not exist before the deletion.
	alice.expect(t, http.StatusNotFound, "GET "+job, "")
	bob.expect(t, http.StatusForbidden, "DELETE /v3/apps/"+app, "")
	if r := alice.expect(t, http.StatusAccepted, "DELETE /v3/apps/"+app, ""); r.location != e.url+job {
		t.Fatalf("found %s, want the job", r.location)
	}
	mallory.expect(t, http.StatusNotFound, "GET "+job, "", "errors.0.detail=Job not found")
	if r := bob.expect(t, http.StatusOK, "GET "+job, "", "state=PROCESSING"); r.took < time.Second {
		t.Errorf("found the response after %s, want it held while Pods are left", r.took)
	}
	answers := alice.getLater(t, job)
	setFinalizers("null")
	r := <-answers
	r.expect(t, "GET "+job, http.StatusOK, "state=COMPLETE")
}

// TestJobOfARouteIsOfADeletion polls the job of a route's deletion. The job does not exist for a route that is not
// being deleted. A caller without access to the route does not find the job, either.
func TestJobOfARouteIsOfADeletion(t *testing.T) {
	e := shared.Get(t)
	space := e.createSpace(t)
	alice, mallory := e.callerNamed(t, "alice"), e.callerNamed(t, "mallory")
	domain := alice.get(t, "/v3/domains").field(t, "resources.0.guid")
	guid := alice.expect(t, http.StatusCreated, "POST /v3/routes",
		`{"host":"`+space+`","relationships":{"space":{"data":{"guid":"`+space+`"}},"domain":{"data":{"guid":"`+domain+`"}}}}`).field(t, "guid")
	setFinalizers := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers))
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), &korifiv1alpha1.CFRoute{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: guid}}, patch))
	}
	setFinalizers(`["example.com/services-are-left"]`)
	job := "/v3/jobs/route.delete~" + guid
	alice.expect(t, http.StatusNotFound, "GET "+job, "", "errors.0.detail=Job not found")
	mallory.expect(t, http.StatusNotFound, "GET "+job, "", "errors.0.detail=Job not found")
	if r := alice.expect(t, http.StatusAccepted, "DELETE /v3/routes/"+guid, ""); r.location != e.url+job {
		t.Fatalf("expected the job %s, found %s", e.url+job, r.location)
	}
	mallory.expect(t, http.StatusNotFound, "GET "+job, "", "errors.0.detail=Job not found")
	answers := alice.getLater(t, job)
	setFinalizers("null")
	r := <-answers
	r.expect(t, "GET "+job, http.StatusOK, "state=COMPLETE")
}
