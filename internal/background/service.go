// SPDX-License-Identifier: Apache-2.0

// Package background calls other machines, such as cloud APIs, outside of reconcile passes, so that no pass waits for a
// call. A pass reads the last result, requests the next call, and ends. When the result arrives, the object is enqueued
// again.
//
// Reading order: queue.go (which call is next) → service.go (how it is made).
package background

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// idleInterval is how often the queues are checked if no call is due earlier.
const idleInterval = time.Minute

// Service stores a value for each key, and makes calls that read or change the value. All calls wait in queues. A call
// begins when it is due and none of its Shares has reached its limit. A Service keeps everything in memory.
// Invariant: at most one call for a key is in progress, even if the key was forgotten and added again during a call
// (TestCallsOfAKeyDoNotOverlap, TestRandomRequestsKeepTheLimits).
type Service[K comparable, V any] struct {
	// Mutex guards the values. Callers of all methods except Start and RunDue must hold it.
	sync.Mutex
	// Queue returns the Share that limits the calls for a key, and in whose queue they wait. If Queue is nil, all calls
	// wait in one queue without a limit. Queue must be set before the Service is used. Its result may depend on the
	// value.
	Queue func(key K, value *V) Share

	clock   clock.PassiveClock
	take    Take[K, V]
	entries map[K]*entry[K, V]
	waiting queues[K, V]
	calling map[K]bool
	// busy counts the calls in progress of each share.
	busy map[Share]int
	// round counts the checks of the queues.
	round int
	wake  chan struct{}
}

// Take returns the call to make for a key, or the zero Call if there is nothing to do. It runs with the lock held. If a
// Share of the call has reached its limit, Take is called again later.
type Take[K comparable, V any] func(key K, value *V, due time.Time) Call

// Call is one call to another machine.
type Call struct {
	// Do makes the call, without the lock. The returned function stores the result, and runs with the lock held. It
	// does not run if the key was forgotten or the service was stopped.
	Do func(ctx context.Context) (store func())
	// Drop, if set, runs with the lock held if store does not run.
	Drop func()
	// Timeout limits the duration of Do.
	Timeout time.Duration
	// Shares limit the call in addition to the Share of its queue. A call that waits for these Shares does not delay
	// other calls in its queue.
	Shares []Share
	// Again, if Do is nil, is the time at which Take is called for the key again.
	Again time.Time
}

// NewService returns a Service. It makes no calls before Start is called.
func NewService[K comparable, V any](c clock.PassiveClock, take Take[K, V]) *Service[K, V] {
	return &Service[K, V]{
		clock: c, take: take, entries: map[K]*entry[K, V]{}, waiting: queues[K, V]{}, calling: map[K]bool{}, busy: map[Share]int{},
		wake: make(chan struct{}, 1),
	}
}

// Get returns the value of a key; nil if it is unknown.
func (s *Service[K, V]) Get(key K) *V {
	if e := s.entries[key]; e != nil {
		return &e.value
	}
	return nil
}

// Put sets the value of a key, and discards its previous value and request.
func (s *Service[K, V]) Put(key K, value V) *V {
	s.Forget(key)
	e := &entry[K, V]{key: key, value: value}
	s.entries[key] = e
	return &e.value
}

// Forget removes a key with its value. The result of a call in progress is discarded.
func (s *Service[K, V]) Forget(key K) {
	if e := s.entries[key]; e != nil {
		if s.isWaiting(e) {
			s.waiting.remove(e)
		}
		delete(s.entries, key)
	}
}

// ListKeys returns the known keys.
func (s *Service[K, V]) ListKeys() []K { return slices.Collect(maps.Keys(s.entries)) }

// CountWaiting returns the number of calls that wait in a queue.
func (s *Service[K, V]) CountWaiting(queue Share) int { return len(s.waiting[queue]) }

// Ask requests a call for a key at a given time. It does nothing if the key is unknown. If a call is already requested
// or postponed, the earlier time applies. If a call is in progress, the requested call follows it.
func (s *Service[K, V]) Ask(key K, at time.Time) {
	e := s.entries[key]
	if e == nil {
		return
	}
	if s.isWaiting(e) {
		s.waiting.remove(e)
	}
	isFirst := e.due.IsZero()
	if isFirst || at.Before(e.at) {
		e.at = at
	}
	if isFirst || at.Before(e.due) {
		e.due = at
	}
	if !s.calling[key] {
		s.insert(e)
		s.wakeUp()
	}
}

func (s *Service[K, V]) insert(e *entry[K, V]) {
	if s.Queue != nil {
		e.queue = s.Queue(e.key, &e.value)
	}
	s.waiting.insert(e)
}

func (s *Service[K, V]) isWaiting(e *entry[K, V]) bool { return !e.due.IsZero() && !s.calling[e.key] }

func (s *Service[K, V]) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable. It returns when ctx is cancelled and all calls have ended.
func (s *Service[K, V]) Start(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, wait := s.takeDue()
		for _, call := range due {
			calls.Go(func() { call(ctx) })
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
	return nil
}

// takeDue returns functions that make the calls that begin now, and the time until the next check of the queues.
func (s *Service[K, V]) takeDue() (begun []func(context.Context), wait time.Duration) {
	s.Lock()
	defer s.Unlock()
	s.round++
	now, wait := s.clock.Now(), idleInterval
	for queue := range s.waiting {
		for s.hasRoom(queue) {
			e := s.waiting.first(queue, now, s.round)
			if e == nil {
				break
			}
			if e.at.After(now) {
				wait = min(wait, e.at.Sub(now))
				break
			}
			if call := s.begin(e); call != nil {
				begun = append(begun, call)
			}
		}
	}
	return begun, wait
}

// begin removes an entry from its queue, and returns a function that makes its call; nil if no call begins. An entry
// whose call is postponed or would exceed a limit returns to the queue.
func (s *Service[K, V]) begin(e *entry[K, V]) func(context.Context) {
	due := e.due
	s.waiting.remove(e)
	e.due, e.round = time.Time{}, s.round
	call := s.take(e.key, &e.value, due)
	hasRoom := !slices.ContainsFunc(call.Shares, func(share Share) bool { return !s.hasRoom(share) })
	switch {
	case call.Do != nil && hasRoom:
		s.calling[e.key] = true
		call.Shares = append(slices.Clone(call.Shares), e.queue)
		for _, share := range call.Shares {
			s.busy[share]++
		}
		return func(ctx context.Context) { s.make(ctx, e, call) }
	case call.Do == nil && call.Again.IsZero(), !e.due.IsZero(), s.entries[e.key] != e:
		return nil // There is nothing to do, or Take has called Ask or Forget.
	case call.Do == nil:
		e.at = call.Again
	}
	e.due = due
	s.insert(e)
	return nil
}

func (s *Service[K, V]) hasRoom(share Share) bool {
	return share.Limit == 0 || s.busy[share] < share.Limit
}

// make makes a call, and stores or discards its result.
func (s *Service[K, V]) make(ctx context.Context, called *entry[K, V], call Call) {
	limited, cancel := context.WithTimeout(ctx, call.Timeout)
	defer cancel()
	store := call.Do(limited)
	s.Lock()
	defer s.Unlock()
	switch isWanted := ctx.Err() == nil && s.entries[called.key] == called; {
	case isWanted:
		store()
	case call.Drop != nil:
		call.Drop()
	}
	for _, share := range call.Shares {
		if s.busy[share]--; s.busy[share] == 0 {
			delete(s.busy, share)
		}
	}
	delete(s.calling, called.key)
	if e := s.entries[called.key]; e != nil && !e.due.IsZero() {
		s.insert(e) // The entry was requested during the call.
	}
	s.wakeUp()
}

// RunDue makes the call for a key if it is due, and reports whether it did. It is intended for tests that set the clock
// of a service that is not started.
func (s *Service[K, V]) RunDue(ctx context.Context, key K) bool {
	s.Lock()
	var call func(context.Context)
	if e := s.entries[key]; e != nil && s.isWaiting(e) && !e.at.After(s.clock.Now()) {
		call = s.begin(e)
	}
	s.Unlock()
	if call != nil {
		call(ctx)
	}
	return call != nil
}
