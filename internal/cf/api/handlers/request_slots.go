// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

// maxSlotWait ends before the time in which a body has to be read.
const maxSlotWait = 8 * time.Second

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

// acquire waits a while for a slot. Call release when the memory is free again.
func (s *RequestSlots) acquire(ctx context.Context, caller string) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxSlotWait)
	defer cancel()
	own := s.joinCaller(caller)
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

func takeSlot(ctx context.Context, slots chan<- struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return apierrors.NewServiceUnavailable("expected a moment in which fewer requests of this kind are worked on, found none; try again", ctx.Err())
	}
}

func (s *RequestSlots) joinCaller(name string) *callerSlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.callers[name]
	if own == nil {
		own = &callerSlots{held: make(chan struct{}, s.perCaller)}
		s.callers[name] = own
	}
	own.users++
	return own
}

func (s *RequestSlots) leaveCaller(name string, own *callerSlots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(s.callers, name)
	}
}
