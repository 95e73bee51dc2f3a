// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
)

// outcome is how a request of a user ended.
type outcome int

const (
	inFlight outcome = iota
	acknowledged
	// unknown is a request without an answer. The API server may have applied it.
	unknown
	refused
)

// outcomeOf returns the outcome of a request. Only an answer about the request itself proves that nothing has changed.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return acknowledged
	case k8serrors.IsInvalid(err) || k8serrors.IsForbidden(err) || k8serrors.IsConflict(err) || k8serrors.IsBadRequest(err):
		return refused
	default:
		return unknown
	}
}

// intent is one value that a user has requested for an object.
type intent struct {
	value       string
	sent, ended time.Time
	outcome     outcome
}

// intentLog records the intents of each object in their order. The requests for one object never overlap.
type intentLog struct {
	mu sync.Mutex
	of map[string][]intent
}

func newIntentLog() *intentLog { return &intentLog{of: map[string][]intent{}} }

// begin records an intent before its request is sent, and returns a function that records the end of the request.
func (l *intentLog) begin(object, value string) (end func(outcome)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[object] = append(l.of[object], intent{value: value, sent: time.Now()})
	last := len(l.of[object]) - 1
	return func(o outcome) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of[object][last].ended, l.of[object][last].outcome = time.Now(), o
	}
}

// schedule records an intent that a schedule will have at a time.
func (l *intentLog) schedule(object, value string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of[object] = append(l.of[object], intent{value, at, at, acknowledged})
}

// current returns the values that an object may have at a time: the newest acknowledged value, and the values of later
// requests without an answer.
func (l *intentLog) current(object string, at time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var values []string
	for _, i := range l.of[object] {
		switch {
		case i.sent.After(at) || i.outcome == refused:
		case i.outcome == acknowledged && !i.ended.After(at):
			values = []string{i.value}
		default:
			values = append(values, i.value)
		}
	}
	return values
}

// age returns the time since a value was last an intent of the object: 0 if it may be the intent at that time. ok is
// false if the value was never requested before.
func (l *intentLog) age(object, value string, at time.Time) (age time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	valid := false
	var since time.Time
	for _, i := range l.of[object] {
		switch {
		case i.sent.After(at) || i.outcome == refused:
		case i.value == value:
			ok, valid = true, true
		case i.outcome == acknowledged && !i.ended.After(at) && valid:
			valid, since = false, i.ended
		}
	}
	if !ok || valid {
		return 0, ok
	}
	return at.Sub(since), true
}

// lastSent returns when a value was last requested before a time, by a request that was not refused.
func (l *intentLog) lastSent(object, value string, before time.Time) (last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.of[object] {
		if i.value == value && i.outcome != refused && !i.sent.After(before) {
			last = i.sent
		}
	}
	return last
}

// count returns the number of acknowledged intents of an object.
func (l *intentLog) count(object string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, i := range l.of[object] {
		if i.outcome == acknowledged {
			n++
		}
	}
	return n
}
