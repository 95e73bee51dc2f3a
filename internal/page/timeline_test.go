// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// newStop returns a stop between two hours on the test's clock. If to is 0, the stop has not ended.
func newStop(from, to int64) torporv1alpha1.StopRecord {
	stop := torporv1alpha1.StopRecord{Since: metav1.Unix(from*3600, 0)}
	if to != 0 {
		stop.EndedAt = new(metav1.Unix(to*3600, 0))
	}
	return stop
}

func buildStops(n int64) (stops []torporv1alpha1.StopRecord) {
	for i := n; i > 0; i-- {
		stops = append(stops, newStop(24*i, 24*i+8))
	}
	return stops
}

func TestStopHistoryJoinsUsersAndSlumbers(t *testing.T) {
	for name, row := range map[string]struct {
		manual, scheduled []torporv1alpha1.StopRecord
		within            timeSpan
		want              []timeSpan
		recordedFrom      int64
	}{
		"object without stops: nothing is drawn":                         {within: timeSpan{0, 100}},
		"overlapping stops by a user and a Slumber: joined":              {manual: []torporv1alpha1.StopRecord{newStop(4, 9)}, scheduled: []torporv1alpha1.StopRecord{newStop(2, 5), newStop(20, 22)}, within: timeSpan{0, 100}, want: []timeSpan{{2, 9}, {20, 22}}},
		"stop that began before the period: truncated":                   {manual: []torporv1alpha1.StopRecord{newStop(4, 9)}, within: timeSpan{6, 100}, want: []timeSpan{{6, 9}}},
		"stop that has not ended: drawn until now":                       {manual: []torporv1alpha1.StopRecord{newStop(90, 0), newStop(4, 9)}, within: timeSpan{6, 100}, want: []timeSpan{{6, 9}, {90, 100}}},
		"current stops by a user and a Slumber: joined":                  {manual: []torporv1alpha1.StopRecord{newStop(95, 0)}, scheduled: []torporv1alpha1.StopRecord{newStop(90, 0)}, within: timeSpan{6, 100}, want: []timeSpan{{90, 100}}},
		"stop that ended before it began: ignored":                       {manual: []torporv1alpha1.StopRecord{newStop(9, 4)}, within: timeSpan{0, 100}},
		"stop outside of the period: ignored":                            {manual: []torporv1alpha1.StopRecord{newStop(1, 2)}, within: timeSpan{6, 100}},
		"full record of manual stops: earlier stops may be missing":      {manual: buildStops(stoprecord.MaxRecords), within: timeSpan{0, 40}, want: []timeSpan{{24, 32}}, recordedFrom: 24},
		"full record of a Slumber's stops: earlier stops may be missing": {scheduled: buildStops(stoprecord.MaxScheduled), within: timeSpan{0, 40}, want: []timeSpan{{24, 32}}, recordedFrom: 24},
	} {
		t.Run(name, func(t *testing.T) {
			h := newStopHistory(kinds.Row{Stops: row.manual, PastScheduled: row.scheduled})
			var found []timeSpan
			for _, s := range h.findStops(timeSpan{row.within.from * 3600, row.within.to * 3600}) {
				found = append(found, timeSpan{s.from / 3600, s.to / 3600})
			}
			if !reflect.DeepEqual(found, row.want) || h.recordedFrom != row.recordedFrom*3600 {
				t.Errorf("expected %v, recorded from %d; found %v and %d", row.want, row.recordedFrom, found, h.recordedFrom/3600)
			}
		})
	}
}

func TestTimelineRowDrawsTheRecord(t *testing.T) {
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).Unix()
	week := timeSpan{monday, monday + 100*3600}
	h := stopHistory{stops: []timeSpan{{monday + 20*3600, monday + 30*3600}}, stoppedSince: monday + 90*3600, recordedFrom: monday + 10*3600}
	found := newTimelineRow(rowView{Badge: "stuck", history: h}, week)
	bars := []bar{{"unknown", 0, 36000}, {"ahead", 360000, weekSeconds - 360000}, {"stopped", 72000, 36000}, {"stuck", 324000, 36000}}
	if !reflect.DeepEqual(found.Bars, bars) || found.Hours != "20.0" {
		t.Errorf("expected %v and 20.0 hours, found %v and %s", bars, found.Bars, found.Hours)
	}
	if want := "Requested stops: Mon 20:00 to Tue 06:00; Thu 18:00 to now; the record begins on Mon 10:00"; found.Text != want {
		t.Errorf("expected %q, found %q", want, found.Text)
	}
}

// TestTimelineSumsFollowTheFilterOfStuckObjects covers two clusters in transition. The manager runs without the
// controllers for one of them, so only that one is stuck.
func TestTimelineSumsFollowTheFilterOfStuckObjects(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	all, k := newInventory(), clusterDeployments(t)
	for _, namespace := range []string{"watched", "unwatched"} {
		cd := buildCluster(namespace, "one")
		cd.Spec.PowerState = hivev1.PowerStateHibernating
		cd.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now.Add(-3 * time.Hour))}}
		all.put(k, newListing(k, cd))
	}
	all.setActing(lease.Read(holdLease(lease.Scope{Controllers: []string{"hibernation"}, Namespaces: []string{"watched"}}), time.Now()))
	sees := &visibility{everywhere: map[string]bool{k.Name(): true}, canPatch: map[kindNamespace]bool{{k.Name(), "watched"}: false, {k.Name(), "unwatched"}: false}}
	for state, want := range map[string][]namespaceSum{
		"":      {{"unwatched", 1, "3.0", 10800}, {"watched", 1, "3.0", 10800}},
		"stuck": {{"unwatched", 1, "3.0", 10800}},
	} {
		v := composeTimeline(composeView(t.Context(), all, sees, viewQuery{State: state, Page: 1}, now), now)
		if len(v.Rows) != len(want) || !reflect.DeepEqual(v.Sums, want) {
			t.Errorf("%q: expected the sums %v of as many rows, found %v of %d", state, want, v.Sums, len(v.Rows))
		}
	}
}

// The timeline shows the objects that its caller may list, with the stops in their records.
func TestTimelineShowsTheStopsOfItsCaller(t *testing.T) {
	e := shared.Get(t)
	ours, others := e.CreateNamespace(t), e.CreateNamespace(t)
	cluster := buildCluster(ours, "weekly")
	e.ExpectCreated(t, cluster, buildCluster(others, "theirs"))
	now := time.Now()
	before := client.MergeFrom(cluster.DeepCopy())
	cluster.Status.Stops = []torporv1alpha1.StopRecord{{Since: metav1.NewTime(now.Add(-9 * time.Hour)), EndedAt: new(metav1.NewTime(now.Add(-4 * time.Hour)))}}
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cluster, before))
	_, token := e.createAccount(t, ours, "viewer", "list")
	b := e.openBrowser(t)
	if status, _ := b.get(t, "/timeline"); status != 401 {
		t.Errorf("expected 401 without a token, found %d", status)
	}
	b.logIn(t, token)
	b.expectShown(t, "/timeline", []string{">weekly<", `class="stopped" x=`, `<td class="number">5.0</td>`, fmt.Sprintf(`<th scope="row">%s</th><td class="number">1</td><td class="number">5.0</td>`, ours), "Seven days"}, []string{"theirs", others})
	b.expectShown(t, "/timeline?q=nothing", []string{"Nothing to show"}, []string{">weekly<"})
}
