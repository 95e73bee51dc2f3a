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

// slowStart is how long a start counts as one of those in progress. One that hangs, because setup blocks or a kind
// cannot sync, must not keep others from starting; what is let through then is one LIST more at a time.
const slowStart = 5 * time.Second

// activation is one activation: a scope, what setup added to it, and the goroutine that waits for the end of both.
type activation struct {
	cancel     context.CancelFunc   // asks the runnables to return
	closeScope func()               // closes the scope, whether or not they have
	events     chan activationEvent // room for all news of a life, so that it never waits for a listener

	// Only the loop touches these.
	startingAt, runningAt, drainingAt time.Time // when it became Starting, Running and Draining; zero when it has not
}

type activationEvent struct {
	fact statemachine.Fact
	err  error
}

// runnablesReturned is no fact of the machine: everything has returned, and AfterStop is called.
const runnablesReturned statemachine.Fact = "Returned"

// eventChannel returns nil, which blocks a select for ever, when nothing lives.
func (l *activation) eventChannel() <-chan activationEvent {
	if l == nil {
		return nil
	}
	return l.events
}

// startActivation starts a life of the group. Its last news is Ended or Erred.
func startActivation(ctx context.Context, g *Group, at time.Time) *activation {
	ctx, cancel := context.WithCancel(ctx)
	l := &activation{cancel: cancel, closeScope: func() {}, events: make(chan activationEvent, 4), startingAt: at}
	s, err := scope.New(g.mgr, g.server, scope.Options{
		Optional: g.optionalKinds, Interest: g.src.interest, KeepInformers: g.options.keepInformers,
		Group: g.options.name, DormantPolicy: g.options.dormantAdmission,
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

// runToEnd returns the last news.
func (l *activation) runToEnd(ctx context.Context, g *Group, s *scope.Manager) activationEvent {
	defer s.End()
	err := g.callBeforeStart(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return activationEvent{statemachine.Ended, nil} // It was asked to give up.
	case err != nil:
		return activationEvent{statemachine.Erred, err}
	}
	err = l.runScope(ctx, g, s)
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

// runScope takes its turn among the starts of the API server, until it is up.
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
	free := sync.OnceFunc(func() { <-g.server.StartSlots })
	slow := time.AfterFunc(slowStart, free)
	return func() { slow.Stop(); free() }, true
}
