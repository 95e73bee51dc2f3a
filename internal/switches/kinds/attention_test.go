// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOverdueStopsNameTheNextStep checks the next step of a user's stop, a Slumber's stop and a stuck stop two hours
// after their end.
func TestOverdueStopsNameTheNextStep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	passed := metav1.NewTime(now.Add(-2 * time.Hour))
	byUser := Row{Namespace: "ns", Kind: "CFApp", Name: "x", Stopped: true, Until: &passed}
	bySlumber, stuck := byUser, byUser
	bySlumber.Slumber = "nights"
	bySlumber, byUser = bySlumber.withNext(""), byUser.withNext("")
	stuck.Next = StuckPrefix + "said"
	for want, r := range map[string]Row{
		"should have started by itself: check whether the manager runs":                                           byUser,
		"should have started by itself: check whether the manager runs, or run kubectl torpor skip -n ns cfapp/x": bySlumber,
		"it is stuck: said": stuck,
	} {
		if next, isOverdue := r.NextAt(now), r.IsOverdue(now); next != want || !isOverdue {
			t.Errorf("expected an overdue row with %q, found %t and %q", want, isOverdue, next)
		}
		if next, isOverdue := r.NextAt(passed.Time), r.IsOverdue(passed.Time); next != r.Next || isOverdue {
			t.Errorf("expected %q at the end itself, found %q", r.Next, next)
		}
	}
}
