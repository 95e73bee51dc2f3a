// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// After an event on a CRD of a group the server is looked at again and again, since it serves, or ceases to serve, a
// little later than it tells: 2 ms, 4 ms, 8 ms … for settleSpan. While a kind of a new CRD is awaited the pauses stay
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

// board is one group version: one look at it answers for all its kinds.
type board struct {
	gv      schema.GroupVersion
	tracks  map[string]*track // by kind
	looking bool              // a look is under way or about to start
	next    time.Time         // of the next look; zero: none is due
	place   int               // in the agenda; -1: not there

	late    bool      // events of CRDs may have come before the first look
	settled time.Time // the end of the looks after an event
	came    time.Time // a CRD of the group was created
	eager   time.Time // the end of the short pauses
	pause   time.Duration

	every    time.Duration // the shortest Poll of its subscribers, 0 without one
	watched  bool          // somebody does not just poll
	fallback bool          // somebody would watch, but may not
	poll     time.Duration // of the fallback
}

// finding is what a look means for the next one.
type finding struct {
	again   bool // a verdict is open
	wanted  bool // a kind is not served
	probing bool // a probe under way will tell more
	moved   bool // a verdict has changed
}

func (f finding) and(other finding) finding {
	return finding{
		again: f.again || other.again, wanted: f.wanted || other.wanted,
		probing: f.probing || other.probing, moved: f.moved || other.moved,
	}
}

// touch notes an event: a look is due at once, and others after it.
func (b *board) touch(came bool, now time.Time) {
	if came {
		b.came = now
	}
	b.pause, b.settled = firstPause, now.Add(settleSpan)
	if !b.came.IsZero() && now.Before(b.came.Add(settleSpan)) {
		b.eager = now.Add(eagerSpan)
	}
}

// plan returns when to look again after a look, and zero when only an event shall be the reason.
func (b *board) plan(f finding, now time.Time) time.Time {
	if b.late && f.wanted {
		b.touch(false, now)
	}
	b.late = false
	var next time.Time
	if b.watched && (f.again || now.Before(b.settled)) {
		next = now.Add(b.pause)
		b.pause = min(2*b.pause, b.longest(f, now))
		return b.polled(next, now)
	}
	if !f.probing {
		b.pause = doubtPause
	}
	if b.fallback {
		b.poll = min(2*b.poll, pollMax)
		if f.moved || b.poll == 0 {
			b.poll = pollMin
		}
		next = now.Add(b.poll)
	}
	return b.polled(next, now)
}

func (b *board) longest(f finding, now time.Time) time.Duration {
	if (f.wanted || f.probing) && now.Before(b.eager) {
		return eagerPause
	}
	return longPause
}

// polled returns next, or the time of the next poll when that is sooner.
func (b *board) polled(next, now time.Time) time.Time {
	poll := now.Add(b.every)
	if b.every > 0 && (next.IsZero() || poll.Before(next)) {
		return poll
	}
	return next
}
