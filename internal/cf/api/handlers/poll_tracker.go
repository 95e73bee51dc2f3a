// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// maxHold is the maximum time by which a response is delayed. Proxies give up after 15 s.
	maxHold = 10 * time.Second
	// maxFirstHold is the age up to which a deployment counts as new. A response about a new deployment is delayed by
	// at most half of maxFirstHold, because a client that does not want to wait polls only once.
	maxFirstHold = 2 * time.Second
	// maxDecisionHold is the maximum wait for the controller's decision on a new or cancelled deployment. The decision
	// usually takes milliseconds, and longer in a busy manager.
	maxDecisionHold = 5 * time.Second
	// maxPolls is the maximum number of remembered starts.
	maxPolls = 1 << 16
)

// PollTracker remembers which callers have recently started which apps. Their clients poll every 3 s, so they notice a
// started app sooner if the response is delayed until the app has started. No response is delayed beyond maxHold after
// the start. A caller who investigates an app that does not start therefore gets immediate responses. Responses to
// callers that have not started the app are never delayed.
type PollTracker struct {
	polls *cache.LRUExpireCache
	clock clock.PassiveClock
}

type pollKey struct{ caller, app string }

// startedPoll is a start for which a client polls.
type startedPoll struct {
	holdUntil time.Time
	// finished contains the processes for which the caller no longer polls.
	finished sync.Map
}

// NewPollTracker returns a tracker without polls.
func NewPollTracker(c clock.PassiveClock) *PollTracker {
	return &PollTracker{polls: cache.NewLRUExpireCacheWithClock(maxPolls, c), clock: c}
}

// StartTracking records that a caller has started an app and will poll its processes.
func (p *PollTracker) StartTracking(caller, app string) {
	p.polls.Add(pollKey{caller, app}, &startedPoll{holdUntil: p.clock.Now().Add(maxHold)}, maxHold)
}

// HoldTime returns the time by which a response about a process may be delayed. It returns 0 if the caller does not
// poll the process.
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

// EndPolls records that the caller no longer polls a process.
func (p *PollTracker) EndPolls(caller, app, process string) {
	if poll := p.find(caller, app); poll != nil {
		poll.finished.Store(process, true)
	}
}

// Stop records that the caller no longer polls an app.
func (p *PollTracker) Stop(caller, app string) { p.polls.Remove(pollKey{caller, app}) }

func (p *PollTracker) find(caller, app string) *startedPoll {
	found, _ := p.polls.Get(pollKey{caller, app})
	poll, _ := found.(*startedPoll)
	return poll
}
