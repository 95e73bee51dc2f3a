// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// TestAFleetIsRolledOutByTurns changes the templates of 20 clusters at the same time.
func TestAFleetIsRolledOutByTurns(t *testing.T) {
	old := provisioning.PodState{Exists: true, Ready: true, Served: true, Outdated: true, ReadyFor: provisioning.SettleTime}
	for _, row := range []struct{ most, want int }{{0, 20}, {1, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%d at once", row.most), func(t *testing.T) {
			turns := newRolloutTurns(row.most, clocktesting.NewFakePassiveClock(time.Now()))
			rolls := make([]bool, 20)
			fleet := make([]provisioning.ObservedRollout, 20)
			for i := range fleet {
				fleet[i] = provisioning.ObservedRollout{RevisionKnown: true, Healthy: true, Pods: []provisioning.PodState{old}}
			}
			for i := range fleet { // All clusters are observed before any of them acts.
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

// TestStuckRolloutsOfATenantDoNotDelayOthers covers two clusters of one tenant whose new Pods never become ready.
func TestStuckRolloutsOfATenantDoNotDelayOthers(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	turns := newRolloutTurns(2, now)
	name := func(namespace, cluster string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: cluster}
	}
	isOpen := func(when string, want bool, cluster types.NamespacedName) {
		t.Helper()
		if found := turns.isOpenTo(cluster); found != want {
			t.Errorf("%s: expected a turn for %s: %t, found %t", when, cluster, want, found)
		}
	}
	for _, cluster := range []string{"a", "b"} {
		if !turns.take(name("stuck", cluster)) {
			t.Fatalf("expected a turn for %s, found none", cluster)
		}
	}
	isOpen("while both turns are recent", false, name("other", "c"))
	now.SetTime(now.Now().Add(strangersWait))
	isOpen("after strangersWait", true, name("other", "c"))
	isOpen("same tenant still waits", false, name("stuck", "c"))
	isOpen("stuck clusters keep their turns", true, name("stuck", "a"))
	if !turns.take(name("stuck", "b")) {
		t.Error("expected another step, found none")
	}
	isOpen("after a step of one stuck cluster", true, name("other", "c"))
	if !turns.take(name("other", "c")) {
		t.Error("expected a turn of another tenant, found none")
	}
	isOpen("at the limit", false, name("other", "d"))
}
