// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// rolloutTurns lets so many clusters be rolled out at a time: a new version of Torpor may change the Pods of all of them, and what is
// wrong with it should show in a few. A manager that starts anew forgets whose turn it was, and rollouts that had begun go on as theirs come.
type rolloutTurns struct {
	// most is 0 for any number.
	most int

	mu    sync.Mutex
	taken map[types.NamespacedName]struct{}
}

func newRolloutTurns(most int) *rolloutTurns {
	return &rolloutTurns{most: most, taken: map[types.NamespacedName]struct{}{}}
}

// isOpenTo reports whether a cluster has a turn or may take one.
func (t *rolloutTurns) isOpenTo(cluster types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mayTake(cluster)
}

func (t *rolloutTurns) mayTake(cluster types.NamespacedName) bool {
	_, has := t.taken[cluster]
	return has || t.most == 0 || len(t.taken) < t.most
}

// take returns false if others were first.
func (t *rolloutTurns) take(cluster types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mayTake(cluster) {
		return false
	}
	t.taken[cluster] = struct{}{}
	return true
}

func (t *rolloutTurns) giveBack(cluster types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, cluster)
}
