// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

// recentLogs is the query of `cf logs --recent`.
const recentLogs = "?descending=true&envelope_types=LOG&limit=1000&start_time=-6795364578871345152"

// TestRecentLogs reads logs of hollow nodes through the API server, with the query of the cf client.
func TestRecentLogs(t *testing.T) {
	t.Parallel()
	w := shared.Get(t)
	space := w.createSpace(t)
	alice, bob, mallory := w.newCaller(t, "alice"), w.newCaller(t, "bob"), w.newCaller(t, "mallory")
	app := alice.createApp(t, space, "shop", 2, started)
	testenv.Eventually(t, "each instance has lines", func() error {
		lines, err := alice.readLogs(t, app, recentLogs)
		if err != nil {
			return err
		}
		for i := range 2 {
			want := fmt.Sprintf("%d hollow container application started with image shop:1; no process runs", i)
			if !slices.Contains(lines, want) || !slices.Contains(lines, fmt.Sprintf("%d ready", i)) {
				return fmt.Errorf("expected %q and a line about its readiness, found %q", want, lines)
			}
		}
		return nil
	})
	if lines, err := alice.readLogs(t, app, "?descending=true&envelope_types=LOG&limit=1"); err != nil || len(lines) != 1 {
		t.Errorf("expected one line for a limit of one, found %q (%v)", lines, err)
	}
	if lines, err := bob.readLogs(t, app, recentLogs); err != nil || len(lines) != 4 {
		t.Errorf("expected four lines for bob, a viewer, found %q (%v)", lines, err)
	}
	mallory.expectStatus(t, http.StatusNotFound, "GET", "/api/v1/read/"+app+recentLogs, "")

	alice.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+app+"/processes/web", `{"command":"HOLLOW_CRASH=no-database ./shop"}`)
	alice.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+app+"/actions/restart", "")
	testenv.Eventually(t, "the reason for a crash is in the log", func() error {
		lines, err := alice.readLogs(t, app, recentLogs)
		if err == nil && !slices.Contains(lines, "0 no-database") {
			err = fmt.Errorf("found %q", lines)
		}
		return err
	})
}

// readLogs returns the lines, each after the index of its instance.
func (c caller) readLogs(t *testing.T, app, query string) ([]string, error) {
	t.Helper()
	a, err := c.send(t.Context(), http.MethodGet, "/api/v1/read/"+app+query, "")
	if err != nil || a.Status != http.StatusOK {
		return nil, fmt.Errorf("expected 200, found %d %s (%w)", a.Status, a.Body, err)
	}
	return conversation.ReadLogLines(a.Body)
}
