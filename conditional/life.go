// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/conditional/internal/machine"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// slowStart is how long a start counts as one of those in progress. One that hangs, because setup blocks or a kind
// cannot sync, must not keep others from starting; what is let through then is one LIST more at a time.
const slowStart = 5 * time.Second

// life is one activation: a scope, what setup added to it, and the goroutine that waits for the end of both.
type life struct {
	cancel context.CancelFunc // asks the runnables to return
	seal   func()             // closes the scope, whether or not they have
	told   chan news          // room for all news of a life, so that it never waits for a listener

	// Only the loop touches these.
	began, up, drained time.Time // when it became Starting, Running and Draining; zero when it has not
}

type news struct {
	fact machine.Fact
	err  error
}

// returned is no fact of the machine: everything has returned, and AfterStop is called.
const returned machine.Fact = "Returned"

// news returns nil, which blocks a select for ever, when nothing lives.
func (l *life) news() <-chan news {
	if l == nil {
		return nil
	}
	return l.told
}

// begin starts a life of the group. Its last news is Ended or Erred.
func begin(ctx context.Context, g *Group, at time.Time) *life {
	ctx, cancel := context.WithCancel(ctx)
	l := &life{cancel: cancel, seal: func() {}, told: make(chan news, 4), began: at}
	s, err := scope.New(g.mgr, g.hub, scope.Options{
		Optional: g.optional, Look: g.src.look, KeepInformers: g.options.keepInformers,
		Group: g.options.name, Dormant: g.options.dormantAdmission,
	})
	if err != nil {
		cancel()
		l.told <- news{machine.Erred, fmt.Errorf("open a scope: %w", err)}
		return l
	}
	l.seal = s.Close
	g.scope.Store(s)
	go func() {
		defer cancel()
		l.told <- l.live(ctx, g, s)
	}()
	return l
}

// live returns the last news.
func (l *life) live(ctx context.Context, g *Group, s *scope.Manager) news {
	defer s.End()
	err := g.beforeStart(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return news{machine.Ended, nil} // It was asked to give up.
	case err != nil:
		return news{machine.Erred, err}
	}
	err = l.run(ctx, g, s)
	s.Close()
	var late error
	if g.options.hooks.AfterStop != nil {
		l.told <- news{returned, nil}
		late = g.afterStop(ctx)
	}
	if err != nil {
		return news{machine.Erred, errors.Join(err, late)}
	}
	return news{machine.Ended, late}
}

// run takes its turn among the starts of the API server, until it is up.
func (l *life) run(ctx context.Context, g *Group, s *scope.Manager) error {
	done, ok := g.takeTurn(ctx)
	if !ok {
		return nil
	}
	defer done()
	if err := g.guard("setup", func() error { return g.setup(s) }); err != nil {
		return err
	}
	up := func() {
		done()
		l.told <- news{machine.Up, nil}
	}
	return s.Run(ctx, up, func() { l.told <- news{machine.Broke, nil} })
}

// takeTurn waits until fewer starts than the limit are in progress; ok is false when ctx ended before.
func (g *Group) takeTurn(ctx context.Context) (done func(), ok bool) {
	select {
	case g.hub.Starts <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	free := sync.OnceFunc(func() { <-g.hub.Starts })
	slow := time.AfterFunc(slowStart, free)
	return func() { slow.Stop(); free() }, true
}
