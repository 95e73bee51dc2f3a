// SPDX-License-Identifier: Apache-2.0

package onebyone

import (
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// maxPendingStarts is the maximum number of starts that are tracked per account.
	maxPendingStarts = 50_000
	// longestStart is how long a start is tracked. After that, StartMachine sends a new start.
	longestStart = 10 * time.Minute
)

// PendingStarts contains the starts that the cloud has accepted for an account, by machine ID, with an identifier of
// each start request. They are tracked because some clouds detect missing capacity only after they have accepted the
// request. PendingStarts is safe for concurrent use.
type PendingStarts struct {
	known *lru.Cache
	clock clock.PassiveClock
}

type pendingStart struct {
	order string
	at    time.Time
}

// NewPendingStarts returns an empty PendingStarts.
func NewPendingStarts(now clock.PassiveClock) PendingStarts {
	return PendingStarts{lru.New(maxPendingStarts), now}
}

// Remember records an accepted start. order identifies its request.
func (p PendingStarts) Remember(id, order string) {
	p.known.Add(id, pendingStart{order, p.clock.Now()})
}

// ForgetMachine removes the start of a machine.
func (p PendingStarts) ForgetMachine(id string) { p.known.Remove(id) }

// Find returns the identifier of the request for the machine's pending start, or "" if no start is pending.
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
