// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// TestAFleetIsRolledOutByTurns gives 20 clusters a new template at once, as a new version of Torpor does, and one of them Pods that
// never become ready.
func TestAFleetIsRolledOutByTurns(t *testing.T) {
	old := provisioning.PodState{Exists: true, Ready: true, Served: true, Outdated: true, ReadyFor: provisioning.SettleTime}
	for _, row := range []struct{ most, want int }{{0, 20}, {1, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%d at once", row.most), func(t *testing.T) {
			turns := newRolloutTurns(row.most)
			rolls := make([]bool, 20)
			fleet := make([]provisioning.ObservedRollout, 20)
			for i := range fleet {
				fleet[i] = provisioning.ObservedRollout{RevisionKnown: true, Healthy: true, Pods: []provisioning.PodState{old}}
			}
			for i := range fleet { // All of them are seen before one acts.
				fleet[i].HasTurn = turns.isOpenTo(types.NamespacedName{Name: fmt.Sprint(i)})
			}
			atOnce, done, rolling := 0, 0, 0
			for range 2 * len(fleet) {
				for i := range fleet {
					name, cluster := types.NamespacedName{Name: fmt.Sprint(i)}, &fleet[i]
					switch plan := provisioning.DecideRollout(*cluster); {
					case plan.EndsTurn:
						turns.giveBack(name)
						if rolls[i] {
							done, rolling = done+1, rolling-1
						}
						rolls[i] = false
					case plan.TakesTurn && turns.take(name):
						cluster.Pods[0].Outdated, rolls[i] = false, true
						rolling++
					}
					atOnce = max(atOnce, rolling)
				}
				for i := range fleet {
					fleet[i].HasTurn = turns.isOpenTo(types.NamespacedName{Name: fmt.Sprint(i)})
				}
			}
			if atOnce != row.want || done < len(fleet) {
				t.Errorf("expected %d of %d clusters to be rolled out at a time, found %d, and %d done", row.want, len(fleet), atOnce, done)
			}
		})
	}
}
