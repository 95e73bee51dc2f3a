// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// strangersWait is how long a rollout without progress delays the rollouts in other namespaces. A fault in one tenant's
// Pods must not block the rollouts of other tenants.
const strangersWait = 15 * time.Minute

// rolloutTurns limits the number of clusters that are rolled out at the same time. A turn is the permission to roll out
// one cluster. A user may change the Pods of all clusters at once, and a fault of the change should affect only a few
// clusters. Turns are not persisted, so after a restart of the manager an unfinished rollout continues when it gets a
// new turn.
type rolloutTurns struct {
	// most is the maximum number of turns. 0 means no limit.
	most  int
	clock clock.PassiveClock

	mu sync.Mutex
	// taken holds, for each cluster with a turn, the time of its last step.
	taken map[types.NamespacedName]time.Time
}

func newRolloutTurns(most int, c clock.PassiveClock) *rolloutTurns {
	return &rolloutTurns{most: most, clock: c, taken: map[types.NamespacedName]time.Time{}}
}

// isOpenTo reports whether a cluster has a turn or can take one.
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

// take takes a turn. It returns false if other clusters have all turns.
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
