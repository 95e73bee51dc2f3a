// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxPendingStarts is how many starts of an account are followed.
	maxPendingStarts = 50_000
	// longestStart is for how long a start is followed; the next one is sent anew.
	longestStart = 10 * time.Minute
)

// PendingStarts are the starts of an account that the cloud has taken, by the ids of their machines, with its own names of them: some clouds find
// out only then that they have no room. They are safe for concurrent use.
type PendingStarts struct {
	known *lru.Cache
	clock clock.PassiveClock
}

type pendingStart struct {
	order string
	at    time.Time
}

// NewPendingStarts returns none.
func NewPendingStarts(now clock.PassiveClock) PendingStarts {
	return PendingStarts{lru.New(maxPendingStarts), now}
}

// Remember notes a start that was taken.
func (p PendingStarts) Remember(id, order string) {
	p.known.Add(id, pendingStart{order, p.clock.Now()})
}

// ForgetMachine drops what is known of a machine.
func (p PendingStarts) ForgetMachine(id string) { p.known.Remove(id) }

// Find returns the start that a machine waits for, or nothing.
func (p PendingStarts) Find(id string) string {
	found, ok := p.known.Get(id)
	if !ok {
		return ""
	}
	if start, isStart := found.(pendingStart); isStart && p.clock.Since(start.at) < longestStart {
		return start.order
	}
	p.known.Remove(id)
	return ""
}
