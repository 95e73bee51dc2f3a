// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	// maxSlotWait ends before the time that a request has.
	maxSlotWait = 8 * time.Second
	// maxWaiting bounds the requests of one caller that have or await a slot.
	maxWaiting = 16
)

// RequestSlots bound how many requests of a kind that takes memory are worked on at once. A caller has a few slots only, so
// that one who sends many waits for themselves, and not everybody for them.
type RequestSlots struct {
	all       chan struct{}
	perCaller int

	mu      sync.Mutex
	callers map[string]*callerSlots
}

// callerSlots count the requests that hold or await a slot of one caller.
type callerSlots struct {
	held  chan struct{}
	users int
}

// NewRequestSlots returns slots of which one caller has some.
func NewRequestSlots(total, perCaller int) *RequestSlots {
	return &RequestSlots{all: make(chan struct{}, total), perCaller: perCaller, callers: map[string]*callerSlots{}}
}

// acquire prepares a request and waits a while for a slot. Call release when the memory is free again.
func (s *RequestSlots) acquire(ctx context.Context, caller string, prepare func() error) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxSlotWait)
	defer cancel()
	own, isTooMany := s.joinCaller(caller)
	if isTooMany {
		err = apierrors.NewRateLimitExceeded()
	} else {
		err = prepare()
	}
	if err != nil {
		s.leaveCaller(caller, own)
		return nil, err
	}
	if err := takeSlot(ctx, own.held); err != nil {
		s.leaveCaller(caller, own)
		return nil, err
	}
	if err := takeSlot(ctx, s.all); err != nil {
		<-own.held
		s.leaveCaller(caller, own)
		return nil, err
	}
	return func() {
		<-s.all
		<-own.held
		s.leaveCaller(caller, own)
	}, nil
}

// holdSlot waits for a slot that is held until the request's context ends, which is when its answer is sent: a client that does not read
// keeps the answer in memory.
func (s *RequestSlots) holdSlot(ctx context.Context, caller string) error {
	release, err := s.acquire(ctx, caller, func() error { return nil })
	if err == nil {
		context.AfterFunc(ctx, release)
	}
	return err
}

func takeSlot(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable("expected a moment in which fewer requests of this kind are worked on, found none; try again", ctx.Err())
	}
}

func (s *RequestSlots) joinCaller(name string) (own *callerSlots, isTooMany bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = s.callers[name]
	if own == nil {
		own = &callerSlots{held: make(chan struct{}, s.perCaller)}
		s.callers[name] = own
	}
	own.users++
	return own, own.users > maxWaiting
}

func (s *RequestSlots) leaveCaller(name string, own *callerSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.callers, name)
	}
}
