// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
)

// TestPassesRemoveTheirObjectFromTheOverdueEnds expects an object to be removed from the overdue ends unless its
// pass is requeued immediately.
func TestPassesRemoveTheirObjectFromTheOverdueEnds(t *testing.T) {
	for name, row := range map[string]struct {
		out     FollowUp
		looks   error
		isAhead bool
	}{
		"the pass is requeued immediately: other passes wait":           {out: FollowUp{RequeueAfter: StaleCacheRetry}, isAhead: true},
		"the pass is requeued after a minute: other passes do not wait": {out: FollowUp{RequeueAfter: time.Minute}},
		"the pass waits for an event: other passes do not wait":         {},
		"a background call is pending: other passes do not wait":        {looks: ErrPending},
		"the cache is stale: other passes wait":                         {looks: ErrStale, isAhead: true},
	} {
		t.Run(name, func(t *testing.T) {
			all, events := priority.NewOverdueEnds(clock.RealClock{}), eventList{}
			p := newPodPass(&fakeServer{}, &events)
			p.Ends = priority.TrackEnds(all, "tester", func(*corev1.Pod) bool { return true }, nil)
			others := priority.TrackEnds(all, "other", nil, func(context.Context, *corev1.Pod) bool { return true })
			p.Observe = func(context.Context, *corev1.Pod) (int, error) { return 0, row.looks }
			p.Report = func(*corev1.Pod, int, int, *RefusedError) FollowUp {
				row.out.Events = []decision.Event{{Reason: "Ended"}}
				return row.out
			}
			result, err := p.Reconcile(t.Context(), podRequest)
			if err != nil {
				t.Fatal(err)
			}
			isUrgent := result.Priority == nil || *result.Priority == priority.Urgent
			isAhead := others.AwaitTurn(t.Context(), types.NamespacedName{Name: "other"}, &corev1.Pod{}) > 0
			if isAhead != row.isAhead || isAhead && !isUrgent || isAhead && len(events) > 0 {
				t.Errorf("expected that others wait: %t, found %t, urgent %t, and events %v", row.isAhead, isAhead, isUrgent, events)
			}
		})
	}
}
