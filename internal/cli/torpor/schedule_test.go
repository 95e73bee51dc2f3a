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
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// TestScheduleOfARow checks the column NEXT and the schedule of rows at 22:00, within the window of a Slumber from
// 20:00 to 07:00.
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
	spread := *nights.DeepCopy()
	spread.Spec.SpreadOver = &metav1.Duration{Duration: 3 * time.Hour}
	const wake, sleep = "is started at 2026-11-25T07:00:00Z by Slumber nights", "is stopped at 2026-11-25T20:00:00Z by Slumber nights"
	const laterWake, laterSleep = "is started at 2026-11-26T07:00:00Z by Slumber nights", "is stopped at 2026-11-26T20:00:00Z by Slumber nights"
	const midnight = "is stopped at 2026-11-25T00:00:00Z by Slumber nights"
	everywhere := torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: "noons"}, Spec: torporv1alpha1.ClusterSlumberSpec{SlumberSpec: noons.Spec}}
	suspended := *nights.DeepCopy()
	suspended.Spec.Suspend = true
	const clusterNoon = "is stopped at 2026-11-25T12:00:00Z by ClusterSlumber noons"
	for name, row := range map[string]struct {
		slumbers []torporv1alpha1.Slumber
		row      kinds.Row
		next     string
		schedule []string
		// ofCluster are the ClusterSlumbers, and labels the labels of the namespace.
		ofCluster []torporv1alpha1.ClusterSlumber
		labels    map[string]string
	}{
		"a ClusterSlumber stops an object without a Slumber": {
			row: kinds.Row{State: "running"}, ofCluster: []torporv1alpha1.ClusterSlumber{everywhere}, next: clusterNoon,
			schedule: []string{clusterNoon, "is started at 2026-11-25T13:00:00Z by ClusterSlumber noons", "is stopped at 2026-11-26T12:00:00Z by ClusterSlumber noons"},
		},
		"a Slumber takes precedence over a ClusterSlumber": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "running"}, ofCluster: []torporv1alpha1.ClusterSlumber{everywhere},
			next: sleep, schedule: []string{wake, sleep, laterWake},
		},
		"a suspended Slumber exempts an object from a ClusterSlumber": {
			slumbers: []torporv1alpha1.Slumber{suspended}, row: kinds.Row{State: "running"}, ofCluster: []torporv1alpha1.ClusterSlumber{everywhere},
		},
		"a label excludes a namespace from a ClusterSlumber": {
			row: kinds.Row{State: "running"}, ofCluster: []torporv1alpha1.ClusterSlumber{everywhere}, labels: map[string]string{torporv1alpha1.ExcludeLabel: "true"},
		},
		"a label excludes an object from a ClusterSlumber": {
			row: kinds.Row{State: "running", Labels: map[string]string{torporv1alpha1.ExcludeLabel: "true"}}, ofCluster: []torporv1alpha1.ClusterSlumber{everywhere},
		},
		"the next transition of a running object is a stop, not a start": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "running"}, next: sleep, schedule: []string{wake, sleep, laterWake},
		},
		"the next stop is the earliest of two Slumbers": {
			slumbers: []torporv1alpha1.Slumber{nights, noons}, row: kinds.Row{State: "running"}, next: "is stopped at 2026-11-25T12:00:00Z by Slumber noons", schedule: []string{
				wake, sleep, laterWake,
				"is stopped at 2026-11-25T12:00:00Z by Slumber noons", "is started at 2026-11-25T13:00:00Z by Slumber noons", "is stopped at 2026-11-26T12:00:00Z by Slumber noons",
			},
		},
		"an object that is skipped until midnight is stopped at midnight": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "running", SkippedUntil: at(2)}, next: midnight, schedule: []string{midnight, wake, sleep, laterWake},
		},
		"an object that is skipped until the end of the window is stopped in the next window": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "running", SkippedUntil: at(9)}, next: sleep, schedule: []string{sleep, laterWake, laterSleep},
		},
		"the column NEXT of a stopped object is not replaced by a transition": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "stopped", Stopped: true, Slumber: "nights", Next: "said"}, next: "said", schedule: []string{wake, sleep, laterWake},
		},
		"an object with a spread delay of two hours and 51 minutes is stopped and started with this delay": {
			slumbers: []torporv1alpha1.Slumber{spread}, row: kinds.Row{State: "running", UID: "uid-32"}, next: "is stopped at 2026-11-24T22:51:00Z by Slumber nights", schedule: []string{
				"is stopped at 2026-11-24T22:51:00Z by Slumber nights", "is started at 2026-11-25T09:51:00Z by Slumber nights", "is stopped at 2026-11-25T22:51:00Z by Slumber nights",
			},
		},
		"an object that is skipped until after its delayed stop is stopped at the end of the skip": {
			slumbers: []torporv1alpha1.Slumber{spread}, row: kinds.Row{State: "running", UID: "uid-32", SkippedUntil: at(2)}, next: midnight, schedule: []string{
				midnight, "is started at 2026-11-25T09:51:00Z by Slumber nights", "is stopped at 2026-11-25T22:51:00Z by Slumber nights", "is started at 2026-11-26T09:51:00Z by Slumber nights",
			},
		},
		"an object with a manual stop without an end has no schedule": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Next: "said"}, next: "said",
		},
		"the schedule of an object with a manual stop begins at the end of this stop": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(12), Next: "said"}, next: "said", schedule: []string{sleep, laterWake, laterSleep},
		},
		"an overdue manual stop does not change the schedule": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(-1), Next: "said"}, next: "said", schedule: []string{wake, sleep, laterWake},
		},
		"a skip that ends during a manual stop does not change the schedule": {
			slumbers: []torporv1alpha1.Slumber{nights}, row: kinds.Row{State: "stopped", Stopped: true, IsAsked: true, Until: at(3), SkippedUntil: at(2), Next: "said"}, next: "said", schedule: []string{wake, sleep, laterWake},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row.row.Namespace, row.row.GroupKind = "ns", schema.GroupKind{Group: "apps", Kind: "Deployment"}
			rows := []stopRow{{Row: row.row}}
			(&commands{clock: clocktesting.NewFakePassiveClock(now)}).addSchedules(rows, slumber.NewSchedules(row.slumbers, row.ofCluster, []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: row.labels}}}))
			found := slices.Collect(func(yield func(string) bool) {
				for _, t := range rows[0].Schedule {
					if !yield(t.describe(formatUTC)) {
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
