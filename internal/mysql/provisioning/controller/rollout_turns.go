// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// strangersWait is how long a turn without a further step keeps clusters of other namespaces waiting: what is wrong with one tenant's Pods
// must not hold up everybody's.
const strangersWait = 15 * time.Minute

// rolloutTurns lets so many clusters be rolled out at a time: a new version of Torpor may change the Pods of all of them, and what is
// wrong with it should show in a few. A manager that starts anew forgets whose turn it was, and rollouts that had begun go on as theirs come.
type rolloutTurns struct {
	// most is 0 for any number.
	most  int
	clock clock.PassiveClock

	mu sync.Mutex
	// taken has the time of the last step of each cluster that has a turn.
	taken map[types.NamespacedName]time.Time
}

func newRolloutTurns(most int, c clock.PassiveClock) *rolloutTurns {
	return &rolloutTurns{most: most, clock: c, taken: map[types.NamespacedName]time.Time{}}
}

// isOpenTo reports whether a cluster has a turn or may take one.
func (t *rolloutTurns) isOpenTo(cluster types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mayTake(cluster)
}

func (t *rolloutTurns) mayTake(cluster types.NamespacedName) bool {
	if _, has := t.taken[cluster]; has || t.most == 0 {
		return true
	}
	inTheWay := 0
	for other, lastStep := range t.taken {
		if other.Namespace == cluster.Namespace || t.clock.Since(lastStep) < strangersWait {
			inTheWay++
		}
	}
	return inTheWay < t.most
}

// take returns false if others were first.
func (t *rolloutTurns) take(cluster types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mayTake(cluster) {
		return false
	}
	t.taken[cluster] = t.clock.Now()
	return true
}

func (t *rolloutTurns) giveBack(cluster types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, cluster)
}
