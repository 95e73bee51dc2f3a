// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/conditional/internal/scope"
	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// slowStart is how long a start occupies a slot of the starts in progress. A start that hangs, because setup blocks or a
// kind cannot sync, must not keep other groups from starting; each one that gives its slot up allows one LIST more.
const slowStart = 5 * time.Second

// activation is one run of a group: a scope, what setup added to it, and the goroutine that waits for the end of both.
type activation struct {
	cancel     context.CancelFunc   // asks the runnables to return
	closeScope func()               // closes the scope, also under runnables that have not returned
	events     chan activationEvent // buffered for all events of an activation, so that sending never blocks

	// The times are used by the goroutine of groupLoop only.
	startingAt, runningAt, drainingAt time.Time // when it became Starting, Running and Draining; zero when it has not
}

type activationEvent struct {
	fact statemachine.Fact
	err  error
}

// runnablesReturned is an event that the state machine does not know: the runnables have returned, and AfterStop runs.
const runnablesReturned statemachine.Fact = "Returned"

// eventChannel returns nil, on which a select waits for ever, when there is no activation.
func (l *activation) eventChannel() <-chan activationEvent {
	if l == nil {
		return nil
	}
	return l.events
}

// startActivation starts the group's scope and setup. Its last event is Ended or Erred.
func startActivation(ctx context.Context, g *Group, at time.Time) *activation {
	ctx, cancel := context.WithCancel(ctx)
	l := &activation{cancel: cancel, closeScope: func() {}, events: make(chan activationEvent, 4), startingAt: at}
	s, err := scope.New(g.mgr, g.server, scope.Options{
		Optional: g.optionalKinds, Interest: g.src.interest,
	})
	if err != nil {
		cancel()
		l.events <- activationEvent{statemachine.Erred, fmt.Errorf("open a scope: %w", err)}
		return l
	}
	l.closeScope = s.Close
	g.currentScope.Store(s)
	go func() {
		defer cancel()
		l.events <- l.runToEnd(ctx, g, s)
	}()
	return l
}

// runToEnd returns the last event.
func (l *activation) runToEnd(ctx context.Context, g *Group, s *scope.Manager) activationEvent {
	defer s.End()
	err := g.callBeforeStart(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return activationEvent{statemachine.Ended, nil} // The stop came while BeforeStart ran: its error is not the group's.
	case err != nil:
		return activationEvent{statemachine.Erred, err}
	}
	err = l.runScope(ctx, g, s)
	// A runnable that has returned may have left a goroutine behind; AfterStop must be the last to act.
	s.Close()
	var late error
	if g.options.hooks.AfterStop != nil {
		l.events <- activationEvent{runnablesReturned, nil}
		late = g.callAfterStop(ctx)
	}
	if err != nil {
		return activationEvent{statemachine.Erred, errors.Join(err, late)}
	}
	return activationEvent{statemachine.Ended, late}
}

// runScope occupies a start slot of the API server until the runnables have been started.
func (l *activation) runScope(ctx context.Context, g *Group, s *scope.Manager) error {
	done, ok := g.acquireStartSlot(ctx)
	if !ok {
		return nil
	}
	defer done()
	if err := g.callRecovering("setup", func() error { return g.setup(s) }); err != nil {
		return err
	}
	up := func() {
		done()
		l.events <- activationEvent{statemachine.Up, nil}
	}
	return s.Run(ctx, up, func() { l.events <- activationEvent{statemachine.Broke, nil} })
}

// acquireStartSlot waits until fewer starts than the limit are in progress; ok is false when ctx ended before.
func (g *Group) acquireStartSlot(ctx context.Context) (done func(), ok bool) {
	select {
	case g.server.StartSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	// The timer and the end of the start both free the slot, whichever comes first.
	free := sync.OnceFunc(func() { <-g.server.StartSlots })
	slow := time.AfterFunc(slowStart, free)
	return func() { slow.Stop(); free() }, true
}
