// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
)

// TestClocksOfNodes hibernates clusters for three minutes while the clock of a node is wrong, and checks when the
// node counts as back.
func TestClocksOfNodes(t *testing.T) {
	const slept, renewal = 3 * time.Minute, 10 * time.Second
	sleep := time.Unix(1_800_000_000, 0)
	for name, row := range map[string]struct {
		// before and after are the differences of the node's clock to the hub's, before and after the hibernation.
		before, after time.Duration
		// isUnread is true if the nodes could not be read before the hibernation.
		isUnread bool
		// looks is the number of polls until the node counts as back. The node renews its Lease before the second
		// poll and before each later one.
		looks int
	}{
		"node with a correct clock is back at the second poll":                                             {0, 0, false, 2},
		"node with a clock five minutes ahead is back at the second poll after a three-minute hibernation": {5 * time.Minute, 5 * time.Minute, false, 2},
		"node with a clock hours ahead is back at the second poll":                                         {5 * time.Hour, 5 * time.Hour, false, 2},
		"unrecorded node with a clock hours ahead is back at the second poll":                              {5 * time.Hour, 5 * time.Hour, true, 2},
		"node with a clock hours behind is back at the second poll":                                        {-5 * time.Hour, -5 * time.Hour, false, 2},
		"node with a clock ahead that is corrected at the resume is back at the second poll":               {5 * time.Hour, 0, false, 2},
		"node with a clock behind that is corrected at the resume is back at the second poll":              {-5 * time.Hour, 0, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			node := func(seen time.Time) []hibernation.ObservedNode {
				return []hibernation.ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n", UID: "u", Ready: true}, LastSeen: seen}}
			}
			o := hibernation.Observed{
				Now: sleep, Installed: true, DesiredPowerState: hivev1.PowerStateHibernating, Machines: []actuator.Machine{{ID: "m", State: actuator.Running}},
				API: hibernation.Reachable, Nodes: node(sleep.Add(row.before - renewal)),
			}
			o.Record = hibernation.Decide(o).Record
			o.Record.AsleepAt, o.Record.ResumeStartedAt = new(metav1.NewTime(sleep)), new(metav1.NewTime(sleep.Add(slept)))
			if row.isUnread {
				o.Record.Nodes = nil
			}
			o.DesiredPowerState = hivev1.PowerStateRunning
			looks, seen := firstLooks{resumes: map[types.UID]*firstLook{}}, sleep.Add(row.before)
			for look := 1; ; look++ {
				o.Now = sleep.Add(slept + time.Duration(look)*renewal)
				o.Nodes = node(seen)
				looks.ofResume("cluster", o).compare(o)
				isReported, isRunning := hibernation.HasReported(o.Record, o.Nodes[0]), hibernation.Decide(o).Ready.Status == metav1.ConditionTrue
				if isReported != isRunning || isRunning != (look >= row.looks) {
					t.Errorf("poll %d: the node has reported: %t, the cluster runs: %t, want both from poll %d on", look, isReported, isRunning, row.looks)
				}
				if look == row.looks+1 {
					return
				}
				seen = o.Now.Add(row.after)
			}
		})
	}
}
