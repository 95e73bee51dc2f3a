// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// Whenever the API is killed in the middle of a restart, the app was restarted once or not at all, and is STARTED; the next
// API knows everything.
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
			_, _ = alice.send(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "") // The answer does not matter.
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
		w.startAPI(w.tb, os.Getenv("TORPOR_BINARY"))
	}
	t.Logf("%d of %d restarts began before the API was killed", began, points)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.waitUntilRunning(t, app, 1)
	w.waitForOnlyRevision(t, space, app, strconv.Itoa(began+2), 1)
}

// requireStartedRevision returns the revision of an app that has to be STARTED.
func (w *env) requireStartedRevision(t *testing.T, space, name string) int {
	t.Helper()
	a := w.getApp(t, space, name)
	if a.Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Fatalf("found the app %s, want it STARTED", a.Spec.DesiredState)
	}
	n, err := strconv.Atoi(a.Annotations[korifiv1alpha1.RevisionAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
