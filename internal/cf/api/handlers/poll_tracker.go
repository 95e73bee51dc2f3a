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
	// pollTimeout is how long the client polls an app that it has started.
	pollTimeout = 5 * time.Minute
	// maxPolls bounds the apps that are remembered as polled.
	maxPolls = 1 << 16
)

// PollTracker remembers which callers have just started which apps. Their clients poll every 3 s, so a response that is held
// until the app runs is faster. Callers that have not started the app get their response at once.
type PollTracker struct {
	polls *cache.LRUExpireCache
}

type pollKey struct{ caller, app string }

// NewPollTracker returns a tracker without polls.
func NewPollTracker(c clock.PassiveClock) *PollTracker {
	return &PollTracker{polls: cache.NewLRUExpireCacheWithClock(maxPolls, c)}
}

// StartTracking notes that a caller has started an app, and will poll its processes.
func (p *PollTracker) StartTracking(caller, app string) {
	// A poll holds the set of processes that the caller need not wait for any more.
	p.polls.Add(pollKey{caller, app}, &sync.Map{}, pollTimeout)
}

// IsPolling reports whether a caller waits for a process of an app.
func (p *PollTracker) IsPolling(caller, app, process string) bool {
	finished := p.finished(caller, app)
	if finished == nil {
		return false
	}
	_, done := finished.Load(process)
	return !done
}

// Finish notes that the caller has seen what there was to wait for.
func (p *PollTracker) Finish(caller, app, process string) {
	if finished := p.finished(caller, app); finished != nil {
		finished.Store(process, true)
	}
}

// Stop notes that the caller does not poll the app any more.
func (p *PollTracker) Stop(caller, app string) { p.polls.Remove(pollKey{caller, app}) }

func (p *PollTracker) finished(caller, app string) *sync.Map {
	found, _ := p.polls.Get(pollKey{caller, app})
	finished, _ := found.(*sync.Map)
	return finished
}
