// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// maxHold bounds how long a response is held; proxies give up after 15 s.
	maxHold = 10 * time.Second
	// maxFirstHold bounds the first response about a deployment: a client that does not want to wait looks only once.
	maxFirstHold = 2 * time.Second
	// maxDecisionHold bounds the wait for what a controller says of a new or cancelled deployment: milliseconds, but for a busy manager.
	maxDecisionHold = 5 * time.Second
	// maxPolls bounds the apps that are remembered as polled.
	maxPolls = 1 << 16
)

// PollTracker remembers which callers have just started which apps. Their clients poll every 3 s, so a response that is held
// until the app runs is faster. All responses about one start are held for maxHold together: who looks why an app does not come up
// gets the answer at once, and so do callers that have not started it.
type PollTracker struct {
	polls *cache.LRUExpireCache
	clock clock.PassiveClock
}

type pollKey struct{ caller, app string }

// startedPoll is a start that a client waits for.
type startedPoll struct {
	holdUntil time.Time
	// finished is the set of processes that the caller need not wait for any more.
	finished sync.Map
}

// NewPollTracker returns a tracker without polls.
func NewPollTracker(c clock.PassiveClock) *PollTracker {
	return &PollTracker{polls: cache.NewLRUExpireCacheWithClock(maxPolls, c), clock: c}
}

// StartTracking notes that a caller has started an app, and will poll its processes.
func (p *PollTracker) StartTracking(caller, app string) {
	p.polls.Add(pollKey{caller, app}, &startedPoll{holdUntil: p.clock.Now().Add(maxHold)}, maxHold)
}

// HoldTime returns for how long a response about a process of an app may be held for a caller; 0 if the caller does not wait for it.
func (p *PollTracker) HoldTime(caller, app, process string) time.Duration {
	poll := p.find(caller, app)
	if poll == nil {
		return 0
	}
	if _, done := poll.finished.Load(process); done {
		return 0
	}
	return max(0, poll.holdUntil.Sub(p.clock.Now()))
}

// EndPolls notes that the caller has seen what there was to wait for.
func (p *PollTracker) EndPolls(caller, app, process string) {
	if poll := p.find(caller, app); poll != nil {
		poll.finished.Store(process, true)
	}
}

// Stop notes that the caller does not poll the app any more.
func (p *PollTracker) Stop(caller, app string) { p.polls.Remove(pollKey{caller, app}) }

func (p *PollTracker) find(caller, app string) *startedPoll {
	found, _ := p.polls.Get(pollKey{caller, app})
	poll, _ := found.(*startedPoll)
	return poll
}
