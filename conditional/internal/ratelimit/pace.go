// SPDX-License-Identifier: Apache-2.0

// Package ratelimit limits how often something may start. It has no clock of its own.
package ratelimit

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// stable is how long something runs until its former starts no longer count.
const stable = 10 * time.Minute

// Pace lets a burst of starts through at once; after it a pause follows each start, every one as long as the back-off
// says, until something has run for long enough.
type Pace struct {
	burst  int
	first  wait.Backoff
	pause  wait.Backoff // what is left of first
	starts int
	next   time.Time
}

// New returns a pace with its whole burst left.
func New(burst int, pause wait.Backoff) *Pace {
	return &Pace{burst: burst, first: pause, pause: pause}
}

// Next returns when the next start may be; a time that has passed means at once.
func (p *Pace) Next() time.Time { return p.next }

// Start notes a start.
func (p *Pace) Start(now time.Time) {
	if p.starts++; p.starts >= p.burst {
		p.next = now.Add(p.pause.Step())
	}
}

// Ran notes how long what was started has run well.
func (p *Pace) Ran(span time.Duration) {
	if span >= stable {
		*p = *New(p.burst, p.first)
	}
}
