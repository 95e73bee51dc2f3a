// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// hold is how long an answer is held back; proxies give up after 15 s.
	hold = 10 * time.Second
	// watched is for how long somebody who started an app is taken to wait for it; so long does the client.
	watched = 5 * time.Minute
	// glance is how long the first look at a deployment is held: who does not want to wait looks once.
	glance = 2 * time.Second
)

// Patience remembers who has just started what: the client asks again every 3 s, so an answer that is held until there is
// something to tell is faster. Others, who only look, get their answer at once.
type Patience struct {
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

// NewPatience remembers nobody yet.
func NewPatience(c clock.PassiveClock) *Patience {
	return &Patience{clock: c, waits: map[wait]*watch{}}
}

// Begin: a caller has started an app.
func (p *Patience) Begin(caller, app string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for w, it := range p.waits {
		if now.Sub(it.since) > watched {
			delete(p.waits, w)
		}
	}
	p.waits[wait{caller, app}] = &watch{since: now, over: map[string]bool{}}
}

// Waits says that a caller waits for a process of an app.
func (p *Patience) Waits(caller, app, process string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.waits[wait{caller, app}]
	return it != nil && p.clock.Now().Sub(it.since) <= watched && !it.over[process]
}

// Seen: the caller knows what there was to wait for.
func (p *Patience) Seen(caller, app, process string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if it := p.waits[wait{caller, app}]; it != nil {
		it.over[process] = true
	}
}

// End: the caller waits no more.
func (p *Patience) End(caller, app string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, wait{caller, app})
}

// held is a context for a wait.
func held(ctx context.Context, atMost time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, atMost)
}
