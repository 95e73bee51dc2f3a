// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// TestStopsAreReportedForTheLog stops a Deployment and starts it.
func TestStopsAreReportedForTheLog(t *testing.T) {
	t.Parallel()
	build := func(stops string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(map[string]string{torporv1alpha1.StopsAnnotation: stops})
		return u
	}
	const (
		never   = `[]`
		stopped = `[{"since": "2026-01-01T00:00:00Z", "by": "alice", "reason": "no budget", "until": "2099-01-01T00:00:00Z", "requestedUntil": "2099-01-01T00:00:00Z", "requested": true}]`
		started = `[{"since": "2026-01-01T00:00:00Z", "by": "alice", "endedAt": "2026-01-02T00:00:00Z", "startedBy": "bob"}]`
	)
	stop := decision.Request{Requester: "alice", Reason: "no budget", Until: "2099-01-01T00:00:00Z"}
	start := decision.Request{Requester: "bob"}
	for name, row := range map[string]struct {
		before, after string
		changes       []decision.Change
		request       decision.Request
	}{
		"new stop: a requested stop is logged":                {never, stopped, []decision.Change{{What: "Stop requested", Request: stop}}, stop},
		"continuing stop: nothing is logged":                  {stopped, stopped, nil, stop},
		"start: a requested start is logged":                  {stopped, started, []decision.Change{{What: "Start requested", Request: start}}, start},
		"running object: nothing is logged":                   {started, started, nil, start},
		"object without a record of stops: nothing is logged": {never, never, nil, decision.Request{}},
	} {
		out := report(nil, fieldswitch.ObservedSwitch{Object: build(row.before), Now: time.Now()}, fieldswitch.SwitchPlan{Next: build(row.after)}, nil)
		if diff := cmp.Diff(row.changes, out.Changes); diff != "" {
			t.Errorf("%s: changes (-want +found):\n%s", name, diff)
		}
		if diff := cmp.Diff(row.request, out.Request); diff != "" {
			t.Errorf("%s: request (-want +found):\n%s", name, diff)
		}
	}
}
