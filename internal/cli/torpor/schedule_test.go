// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// TestScheduleOfARow has NEXT and the schedule of a row at 22:00, in the window of a Slumber from 20:00 to 07:00.
func TestScheduleOfARow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	at := func(hours int) *metav1.Time { return new(metav1.NewTime(now.Add(time.Duration(hours) * time.Hour))) }
	nights := torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "nights"}, Spec: torporv1alpha1.SlumberSpec{
		TimeZone: "UTC", Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}},
		Waves: []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment"}}}},
	}}
	noons := *nights.DeepCopy()
	noons.Name, noons.Spec.Windows = "noons", []torporv1alpha1.SlumberWindow{{Sleep: "0 12 * * *", Wake: "0 13 * * *"}}
	const wake, sleep = "is started at 2026-11-25T07:00:00Z by Slumber nights", "is stopped at 2026-11-25T20:00:00Z by Slumber nights"
	const laterWake, laterSleep = "is started at 2026-11-26T07:00:00Z by Slumber nights", "is stopped at 2026-11-26T20:00:00Z by Slumber nights"
	const midnight = "is stopped at 2026-11-25T00:00:00Z by Slumber nights"
	for name, row := range map[string]struct {
		slumbers []torporv1alpha1.Slumber
		row      kinds.Row
		next     string
		schedule []string
	}{
		"a running object is stopped next, not started": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "running"}, sleep, []string{wake, sleep, laterWake},
		},
		"the next stop is the earliest of two Slumbers": {
			[]torporv1alpha1.Slumber{nights, noons}, kinds.Row{State: "running"}, "is stopped at 2026-11-25T12:00:00Z by Slumber noons", []string{
				wake, sleep, laterWake,
				"is stopped at 2026-11-25T12:00:00Z by Slumber noons", "is started at 2026-11-25T13:00:00Z by Slumber noons", "is stopped at 2026-11-26T12:00:00Z by Slumber noons",
			},
		},
		"an object skipped until midnight is stopped then": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "running", SkippedUntil: at(2)}, midnight, []string{midnight, wake, sleep, laterWake},
		},
		"an object skipped until the end of the window is stopped in the evening": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "running", SkippedUntil: at(9)}, sleep, []string{sleep, laterWake, laterSleep},
		},
		"a sleeping object keeps its own next step": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "stopped", Stopped: true, Slumber: "nights", Next: "said"}, "said", []string{wake, sleep, laterWake},
		},
		"a manual stop without an end has no schedule": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Next: "said"}, "said", nil,
		},
		"the schedule begins at the end of a manual stop": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(12), Next: "said"}, "said", []string{sleep, laterWake, laterSleep},
		},
		"a manual stop that is overdue changes no schedule": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(-1), Next: "said"}, "said", []string{wake, sleep, laterWake},
		},
		"a skip that ends during a manual stop changes no schedule": {
			[]torporv1alpha1.Slumber{nights}, kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(3), SkippedUntil: at(2), Next: "said"}, "said", []string{wake, sleep, laterWake},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.row.Namespace, row.row.GroupKind = "ns", schema.GroupKind{Group: "apps", Kind: "Deployment"}
			rows := []stopRow{{Row: row.row}}
			(&commands{clock: clocktesting.NewFakePassiveClock(now)}).addSchedules(rows, row.slumbers)
			found := slices.Collect(func(yield func(string) bool) {
				for _, t := range rows[0].Schedule {
					if !yield(t.describe()) {
						return
					}
				}
			})
			if diff := cmp.Diff(append([]string{row.next}, row.schedule...), append([]string{rows[0].Next}, found...)); diff != "" {
				t.Errorf("NEXT and the schedule (-want +found):\n%s", diff)
			}
		})
	}
}
