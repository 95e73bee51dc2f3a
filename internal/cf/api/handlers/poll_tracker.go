// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// maxHold is how long an answer is held back; proxies give up after 15 s.
	maxHold = 10 * time.Second
	// pollTimeout is for how long somebody who started an app is taken to wait for it; so long does the client.
	pollTimeout = 5 * time.Minute
	// maxFirstHold is how long the first look at a deployment is held: who does not want to wait looks once.
	maxFirstHold = 2 * time.Second
)

// PollTracker remembers who has just started what: the client asks again every 3 s, so an answer that is held until there is
// something to tell is faster. Others, who only look, get their answer at once.
type PollTracker struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	waits map[wait]*watch
}

type wait struct{ caller, app string }

// watch is since when somebody waits, and for which processes no more.
type watch struct {
	since time.Time
	over  map[string]bool
}

// NewPollTracker remembers nobody yet.
func NewPollTracker(c clock.PassiveClock) *PollTracker {
	return &PollTracker{clock: c, waits: map[wait]*watch{}}
}

// Start: a caller has started an app.
func (p *PollTracker) Start(caller, app string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for w, it := range p.waits {
		if now.Sub(it.since) > pollTimeout {
			delete(p.waits, w)
		}
	}
	p.waits[wait{caller, app}] = &watch{since: now, over: map[string]bool{}}
}

// IsPolling says that a caller waits for a process of an app.
func (p *PollTracker) IsPolling(caller, app, process string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.waits[wait{caller, app}]
	return it != nil && p.clock.Now().Sub(it.since) <= pollTimeout && !it.over[process]
}

// Finish: the caller knows what there was to wait for.
func (p *PollTracker) Finish(caller, app, process string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if it := p.waits[wait{caller, app}]; it != nil {
		it.over[process] = true
	}
}

// Stop: the caller waits no more.
func (p *PollTracker) Stop(caller, app string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, wait{caller, app})
}

// withDeadline is a context for a wait.
func withDeadline(ctx context.Context, atMost time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, atMost)
}
