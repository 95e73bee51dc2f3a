// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func TestStateOfASlumberHasTheTimeZoneOfItsSchedule(t *testing.T) {
	now := time.Date(2026, 12, 1, 1, 0, 0, 0, time.UTC)
	for zone, want := range map[string]string{"Asia/Tokyo": "Tue 2026-12-01 09:00 JST", "nowhere": "2026-12-01 00:00 UTC"} {
		s := &torporv1alpha1.Slumber{}
		s.Spec.TimeZone, s.Spec.Windows = zone, []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}}
		s.Status.Since = new(metav1.NewTime(now.Add(-time.Hour)))
		a := &commands{clock: clocktesting.NewFakeClock(now)}
		if found := a.explain(s).since; found != want {
			t.Errorf("%s: expected %q, found %q", zone, want, found)
		}
	}
}
