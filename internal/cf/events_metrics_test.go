// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// A restart is recorded in an event with its author and revision, in the app's status, and in metrics.
func TestRestartShowsInEventsAndMetrics(t *testing.T) {
	e := shared.Get(t)
	before := waitForQuietMetrics(t)
	a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_START=2s HOLLOW_STOP=3s ./app"})
	a.waitUntilRunning(t)
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	const note = "revision 1 began: Restart by admin"
	testenv.Eventually(t, "the event is there", func() error {
		var list eventsv1.EventList
		if err := e.Client.List(t.Context(), &list, client.InNamespace(e.namespace)); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for _, e := range list.Items {
			if e.Regarding.Name == a.name && e.Reason == "RevisionBegan" && e.Note == note {
				return nil
			}
		}
		return fmt.Errorf("expected %q, found %d other events", note, len(list.Items))
	})
	last := a.getApp(t).Status.LastRestart
	if last == nil || last.Revision != 1 || last.By != "admin" || last.Droplet != a.name || last.At.IsZero() {
		t.Errorf("expected the restart to be remembered, found %+v", last)
	}
	testenv.Eventually(t, "the metrics show it", func() error {
		values, err := gatherMetrics(a.name)
		if err != nil {
			return err
		}
		found := map[string]float64{}
		for _, name := range []string{"torpor_app_revision", "torpor_app_instances desired", "torpor_app_instances ready", "torpor_app_instances ready_older", "torpor_app_instances draining"} {
			found[name] = values[name]
		}
		for _, name := range []string{"torpor_app_restarts_total Restart", "torpor_app_first_ready_seconds", "torpor_app_drain_seconds"} {
			found[name] = values[name] - before[name]
		}
		if diff := cmp.Diff(map[string]float64{
			"torpor_app_revision": 1, "torpor_app_instances desired": 2, "torpor_app_instances ready": 2, "torpor_app_instances ready_older": 0, "torpor_app_instances draining": 0,
			"torpor_app_restarts_total Restart": 1, "torpor_app_first_ready_seconds": 2, "torpor_app_drain_seconds": 1,
		}, found); diff != "" {
			return fmt.Errorf("metrics (-want +got):\n%s", diff)
		}
		// Two revisions each needed two seconds to become ready, and one needed three to terminate. The result may be a
		// second less, because timestamps have whole seconds.
		for name, least := range map[string]float64{"torpor_app_first_ready_seconds sum": 3, "torpor_app_drain_seconds sum": 2} {
			if took := values[name] - before[name]; took < least || took > 10*least {
				t.Errorf("expected %s of about %g, found %g", name, least, took)
			}
		}
		return nil
	})
	before = waitForQuietMetrics(t)
	for range 5 {
		a.setState(t, stopped)
		a.setState(t, started)
	}
	a.waitUntilRunning(t)
	testenv.Eventually(t, "restarts that ended at once are counted", func() error {
		after, err := gatherMetrics("")
		if counted := after["torpor_app_restarts_total Stop"] - before["torpor_app_restarts_total Stop"]; counted != 5 {
			return fmt.Errorf("expected 5, found %g (%w)", counted, err)
		}
		return nil
	})
}

// waitForQuietMetrics waits until the metrics of apps from other tests no longer change, and returns the metrics.
func waitForQuietMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	var last map[string]float64
	var since time.Time
	testenv.Eventually(t, "the metrics of all apps stand still", func() error {
		found, err := gatherMetrics("")
		if err != nil {
			return err
		}
		// The registry also has metrics of controllers and clients, which change all the time.
		maps.DeleteFunc(found, func(name string, _ float64) bool { return !strings.HasPrefix(name, "torpor_app_") })
		if !cmp.Equal(last, found) {
			last, since = found, time.Now()
		}
		if stood := time.Since(since); stood < 3*time.Second {
			return fmt.Errorf("they changed %s ago", stood)
		}
		return nil
	})
	return last
}

// gatherMetrics returns the metrics of an app and the metrics without an app label, keyed by name and label. Of
// histograms it returns the count and the sum.
func gatherMetrics(app string) (map[string]float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, other := f.GetName(), false
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "name":
					other = l.GetValue() != app
				case "state", "cause":
					name += " " + l.GetValue()
				}
			}
			if !other {
				values[name] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
				values[name+" sum"] += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return values, nil
}
