// SPDX-License-Identifier: Apache-2.0

// Package ratelimit limits how often something may start. It has no clock of its own.
package ratelimit

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// forgetStartsAfter is how long something runs until its former starts no longer count.
const forgetStartsAfter = 10 * time.Minute

// StartLimiter lets a burst of starts through at once; after it a pause follows each start, as long as the next step of the
// back-off, until something has run for long enough. golang.org/x/time/rate has no pauses that grow.
type StartLimiter struct {
	burst  int
	first  wait.Backoff
	pause  wait.Backoff // what is left of first
	starts int
	next   time.Time
}

// New returns a limiter with its whole burst left.
func New(burst int, pause wait.Backoff) *StartLimiter {
	return &StartLimiter{burst: burst, first: pause, pause: pause}
}

// NextStart returns when the next start may be; a time that has passed means at once.
func (p *StartLimiter) NextStart() time.Time { return p.next }

// NoteStart records a start.
func (p *StartLimiter) NoteStart(now time.Time) {
	if p.starts++; p.starts >= p.burst {
		p.next = now.Add(p.pause.Step())
	}
}

// NoteRun records how long a start has run without a failure.
func (p *StartLimiter) NoteRun(span time.Duration) {
	if span >= forgetStartsAfter {
		*p = *New(p.burst, p.first)
	}
}
