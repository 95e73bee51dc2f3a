// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	// maxSlotWait is the maximum wait for a slot. It is shorter than the request timeout.
	maxSlotWait = 8 * time.Second
	// maxWaiting limits the requests of one caller that hold or await a slot.
	maxWaiting = 16
)

// RequestSlots limits the number of concurrent expensive requests. It also limits them per caller, so many requests of
// one caller delay only that caller.
type RequestSlots struct {
	all       chan struct{}
	perCaller int

	mu      sync.Mutex
	callers map[string]*callerSlots
}

// callerSlots counts the requests of one caller that hold or await a slot.
type callerSlots struct {
	held  chan struct{}
	users int
}

// NewRequestSlots returns total slots. Each caller may hold perCaller of them.
func NewRequestSlots(total, perCaller int) *RequestSlots {
	return &RequestSlots{all: make(chan struct{}, total), perCaller: perCaller, callers: map[string]*callerSlots{}}
}

// acquire calls prepare, and then waits for a slot, both within maxSlotWait. Call release when the request no longer
// needs the slot.
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

// holdSlot waits for a slot and holds it until the request's context ends, after the response has been sent. Until
// then, a client that reads slowly keeps the response in memory.
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
		return apierrors.NewServiceUnavailable("expected fewer requests of this kind at the same time, found too many to process this request in time; try again", ctx.Err())
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
