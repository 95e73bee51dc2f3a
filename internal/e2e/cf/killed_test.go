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

// testKilled: whenever the API is killed in the middle of a restart, the app was restarted once or not at all, and is
// STARTED; the next API knows everything.
func (w *world) testKilled(t *testing.T) {
	const points = 6
	space, alice := w.space(t), w.caller(t, "alice")
	app := alice.app(t, space, "shop", 1, started)
	begun := time.Now()
	alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	whole := time.Since(begun)
	began := 0
	for i := range points {
		before := w.revision(t, space, app)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = alice.try(t.Context(), "POST", "/v3/apps/"+app+"/actions/restart", "") // Whether it was told is not the point.
		}()
		moment, cancel := context.WithTimeout(t.Context(), whole*time.Duration(2*i)/points)
		<-moment.Done()
		cancel()
		w.api.Kill9(t)
		<-answered
		after := w.revision(t, space, app)
		if after != before && after != before+1 {
			t.Errorf("found revision %d after %d, want at most one more", after, before)
		}
		began += after - before
		w.http.CloseIdleConnections()
		w.startAPI(t, os.Getenv("TORPOR_BINARY"))
	}
	t.Logf("%d of %d restarts began before the API was killed", began, points)
	alice.must(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	alice.runs(t, app, 1)
	w.only(t, space, app, strconv.Itoa(began+2), 1)
}

// revision is that of an app, which has to be STARTED.
func (w *world) revision(t *testing.T, space, name string) int {
	t.Helper()
	a := w.app(t, space, name)
	if a.Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Fatalf("found the app %s, want it STARTED", a.Spec.DesiredState)
	}
	n, err := strconv.Atoi(a.Annotations[korifiv1alpha1.RevisionAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
