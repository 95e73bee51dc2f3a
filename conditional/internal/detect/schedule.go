// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// After an event on a CRD of a group the server is looked at again and again, since it begins or ceases to serve the kind
// a little later than it sends the event: 2 ms, 4 ms, 8 ms … for settleSpan. While a kind of a new CRD is awaited the pauses stay
// short for eagerSpan: what is installed under load is served after a hundred milliseconds, not after two hundred.
const (
	firstPause = 2 * time.Millisecond
	eagerPause = 32 * time.Millisecond
	eagerSpan  = 2 * time.Second
	settleSpan = 10 * time.Second
	doubtPause = 100 * time.Millisecond // doubled up to longPause while a verdict is open
	longPause  = 30 * time.Second
	pollMin    = 10 * time.Second // doubled up to pollMax while nothing changes
	pollMax    = time.Minute
)

// versionState is one group version: one look at it answers for all its kinds.
type versionState struct {
	gv        schema.GroupVersion
	kinds     map[string]*kindState // by kind
	isLooking bool                  // a look is under way or about to start
	next      time.Time             // of the next look; zero: none is due
	timer     *time.Timer           // of the next look
	look      func()                // looks at it

	mayHaveMissedEvents bool      // events of CRDs may have come before the first look
	settlesAt           time.Time // the end of the looks after an event
	crdCreatedAt        time.Time // a CRD of the group was created
	eagerUntil          time.Time // the end of the short pauses
	pause               time.Duration

	pollInterval  time.Duration // the shortest Poll of its subscribers, 0 without one
	hasWatchers   bool          // a subscriber watches
	needsFallback bool          // a subscriber would watch, but may not
	fallbackPause time.Duration // of the fallback
}

// lookSummary decides when the next look comes.
type lookSummary struct {
	isOpen     bool // a verdict is open
	isMissing  bool // a kind is not served
	isProbing  bool // the result of a probe is to come
	hasChanged bool // a verdict has changed
}

func (f lookSummary) mergeWith(other lookSummary) lookSummary {
	return lookSummary{
		isOpen: f.isOpen || other.isOpen, isMissing: f.isMissing || other.isMissing,
		isProbing: f.isProbing || other.isProbing, hasChanged: f.hasChanged || other.hasChanged,
	}
}

// noteEvent restarts the short pauses: after an event looks are due at once and again soon.
func (b *versionState) noteEvent(came bool, now time.Time) {
	if came {
		b.crdCreatedAt = now
	}
	b.pause, b.settlesAt = firstPause, now.Add(settleSpan)
	// A new CRD is established by later events, and each of them may be the one that makes the kind served.
	if !b.crdCreatedAt.IsZero() && now.Before(b.crdCreatedAt.Add(settleSpan)) {
		b.eagerUntil = now.Add(eagerSpan)
	}
}

// planNextLook returns when to look again after a look, and zero when only an event shall be the reason.
func (b *versionState) planNextLook(f lookSummary, now time.Time) time.Time {
	// The event may have come before the first look, and the kind may be served a moment later without another one.
	if b.mayHaveMissedEvents && f.isMissing {
		b.noteEvent(false, now)
	}
	b.mayHaveMissedEvents = false
	var next time.Time
	if b.hasWatchers && (f.isOpen || now.Before(b.settlesAt)) {
		next = now.Add(b.pause)
		b.pause = min(2*b.pause, b.maxPause(f, now))
		return b.limitByPoll(next, now)
	}
	if !f.isProbing {
		b.pause = doubtPause
	}
	if b.needsFallback {
		b.fallbackPause = min(2*b.fallbackPause, pollMax)
		if f.hasChanged || b.fallbackPause == 0 {
			b.fallbackPause = pollMin
		}
		next = now.Add(b.fallbackPause)
	}
	return b.limitByPoll(next, now)
}

func (b *versionState) maxPause(f lookSummary, now time.Time) time.Duration {
	if (f.isMissing || f.isProbing) && now.Before(b.eagerUntil) {
		return eagerPause
	}
	return longPause
}

// limitByPoll returns next, or the time of the next poll when that is sooner.
func (b *versionState) limitByPoll(next, now time.Time) time.Time {
	poll := now.Add(b.pollInterval)
	if b.pollInterval > 0 && (next.IsZero() || poll.Before(next)) {
		return poll
	}
	return next
}
