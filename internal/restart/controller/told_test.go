// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/internal/testkit"
)

// A restart is told of: an event with who and which revision, the app's own list, and metrics.
func (s *stage) testTold(t *testing.T) {
	a := s.newApp(t, options{instances: 1})
	a.awaitsRunning(t)
	a.restart(t, "once")
	a.awaitsRunning(t)
	const note = "revision 1 began: Restart by admin"
	testkit.Eventually(t, "the event is there", func() error {
		var list eventsv1.EventList
		if err := s.Client.List(t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		for _, e := range list.Items {
			if e.Regarding.Name == a.name && e.Reason == "RevisionBegan" && e.Note == note {
				return nil
			}
		}
		return fmt.Errorf("expected %q, found %d other events", note, len(list.Items))
	})
	last := a.get(t).Status.LastRestart
	if last == nil || last.Revision != 1 || last.By != "admin" || last.Droplet != a.name || last.At.IsZero() {
		t.Errorf("expected the restart to be remembered, found %+v", last)
	}
	testkit.Eventually(t, "the metrics show it", func() error {
		values, err := gathered(a.name)
		if err != nil {
			return err
		}
		for name, least := range map[string]float64{
			"torpor_app_revision": 1, "torpor_app_restarts_total": 1, "torpor_app_first_ready_seconds": 2, "torpor_app_drain_seconds": 1,
		} {
			if values[name] < least {
				return fmt.Errorf("expected %s of at least %g, found %g", name, least, values[name])
			}
		}
		return nil
	})
}

// gathered are the metrics of an app, or of all apps where they are not told apart: values, and how many times were taken.
func gathered(app string) (map[string]float64, error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			other := false
			for _, l := range m.GetLabel() {
				other = other || l.GetName() == "name" && l.GetValue() != app
			}
			if !other {
				values[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values, nil
}
