// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestPageShowsAllGroupsOfTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mgr := newFakeManager()
		close(mgr.elected)
		var starts, ends atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		says := map[string]chan Status{}
		for name, setup := range map[string]SetupFunc{
			"runs": obedientSetup(&starts, &ends), "fails": func(manager.Manager) error { return errors.New("boom") },
			"sleeps": obedientSetup(&starts, &ends), "waits": obedientSetup(&starts, &ends),
		} {
			says[name] = make(chan Status)
			mustSetUp(t, mgr, switchedCondition{says[name]}, setup, Name(name), RestartLimit(1, wait.Backoff{Duration: time.Minute}))
		}
		go func() { _ = mgr.added[0].Start(ctx) }()
		if _, err := Setup(newFakeManager(), switchedCondition{}, obedientSetup(&starts, &ends), Name("of another manager")); err == nil {
			t.Error("a name with spaces was taken")
		}
		says["runs"] <- Status{State: True, Reason: "Served", Identity: "a"}
		says["fails"] <- Status{State: True, Reason: "Served"}
		says["waits"] <- Status{State: True}
		synctest.Wait()
		says["waits"] <- Status{State: True, Reason: "Served", Identity: "b"}
		synctest.Wait()

		const want = `{
  "groups": [
    {
      "name": "fails",
      "phase": "Failed",
      "since": "2000-01-01T00:00:00Z",
      "reason": "Erred",
      "condition": {
        "state": "True",
        "reason": "Served"
      },
      "error": "setup: boom"
    },
    {
      "name": "runs",
      "phase": "Running",
      "since": "2000-01-01T00:00:00Z",
      "reason": "Up",
      "condition": {
        "state": "True",
        "reason": "Served",
        "identity": "a"
      }
    },
    {
      "name": "sleeps",
      "phase": "Dormant",
      "since": "2000-01-01T00:00:00Z",
      "condition": {
        "state": "Unknown"
      }
    },
    {
      "name": "waits",
      "phase": "Dormant",
      "since": "2000-01-01T00:00:00Z",
      "reason": "Ended",
      "heldUntil": "2000-01-01T00:01:00Z",
      "condition": {
        "state": "True",
        "reason": "Served",
        "identity": "b"
      },
      "heldBack": [
        {
          "reason": "RestartLimit",
          "message": "the restart limit delays the next start until 2000-01-01T00:01:00Z"
        }
      ]
    }
  ]
}
`
		if diff := cmp.Diff(want, page(t, mgr)); diff != "" {
			t.Errorf("page (-want +got):\n%s", diff)
		}
		stop()
		synctest.Wait()
		if diff := cmp.Diff("{\n  \"groups\": []\n}\n", page(t, mgr)); diff != "" {
			t.Errorf("page after all have ended (-want +got):\n%s", diff)
		}
	})
}

func page(t *testing.T, mgr *fakeManager) string {
	t.Helper()
	answer := httptest.NewRecorder()
	mgr.extra["/debug/conditional"].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/debug/conditional", nil))
	if got := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || got != "application/json" {
		t.Errorf("the page is %d %s", answer.Code, got)
	}
	return answer.Body.String()
}

func TestDuplicateGroupNameIsRefused(t *testing.T) {
	fine := func(manager.Manager) error { return nil }
	g := mustSetUp(t, newFakeManager(), switchedCondition{}, fine, Name("mine"))
	defer g.release()
	other := newFakeManager()
	if _, err := Setup(other, switchedCondition{}, fine, Name("mine")); err == nil || !strings.Contains(err.Error(), "a unique name") {
		t.Errorf("the second group got %v", err)
	}
	if len(other.added)+len(other.extra)+len(other.ready) > 0 {
		t.Error("the second manager has something of it")
	}
}

// series returns a group's samples in the process's registry, without buckets.
func series(t *testing.T, group string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			mine := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "group" {
					mine = l.GetValue() == group
				} else {
					labels = append(labels, l.GetValue())
				}
			}
			if !mine || !strings.HasPrefix(f.GetName(), "conditional_") {
				continue
			}
			name := strings.Join(append([]string{strings.TrimPrefix(f.GetName(), "conditional_")}, labels...), " ")
			if h := m.GetHistogram(); h != nil {
				found[name+" count"], found[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
				continue
			}
			found[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

func TestMetricsAfterEveryEnd(t *testing.T) {
	var hold, start time.Duration
	setup := func(mgr manager.Manager) error {
		<-time.After(start)
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(hold)
			return nil
		}))
	}
	runGroup(t, setup, func(r *groupEnv) {
		name := r.group.Status().Name
		synctest.Wait()
		fresh := series(t, name)
		cycle := func() {
			r.report(True, "a")
			r.advance(start)
			r.expectPhase(Running)
			r.report(False, "")
			r.advance(hold)
			r.expectPhase(Dormant)
		}
		r.elect()
		start, hold = 3*time.Second, 20*time.Second
		cycle()
		start, hold = time.Second, time.Minute
		cycle()
		got := series(t, name)
		grown := map[string]float64{}
		for sample, value := range got {
			grown[sample] = value - fresh[sample]
		}
		want := map[string]float64{
			"state Dormant": 0, "state Starting": 0, "state Running": 0, "state Draining": 0, "state Stuck": 0, "state Failed": 0,
			"state Disabled": 0, "state Forbidden": 0, "state Elsewhere": 0,
			"held_back RestartLimit": 0, "held_back Forbidden": 0, "held_back WatchForbidden": 0, "held_back Draining": 0,
			"transitions_total Wanted Starting": 2, "transitions_total Up Running": 2, "transitions_total Unwanted Draining": 2,
			"transitions_total Ended Dormant": 2, "transitions_total Overdue Stuck": 1, "drain_timeouts_total": 1,
			"start_seconds count": 2, "start_seconds sum": 4, "stop_seconds count": 2, "stop_seconds sum": 80,
		}
		if diff := cmp.Diff(want, grown); diff != "" {
			t.Errorf("two restarts added (-want +got):\n%s", diff)
		}
		if got["state Dormant"] != 1 {
			t.Errorf("a stopped group is not Dormant in %v", got)
		}
		start, hold = 0, 0
		for range 100 {
			cycle()
		}
		later := series(t, name)
		if len(later) != len(got) {
			t.Errorf("%d series after 100 restarts more, want %d as before: %v", len(later), len(got), later)
		}
		if later["start_seconds count"] != got["start_seconds count"]+100 || later["stop_seconds count"] != got["stop_seconds count"]+100 {
			t.Errorf("100 restarts after %v are counted as %v", got, later)
		}
	}, RestartLimit(1000, wait.Backoff{Duration: time.Second}))
}
