// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// life is one activation: a scope, what setup added to it, and the goroutine that waits for the end of both.
type life struct {
	cancel context.CancelFunc // asks the runnables to return
	seal   func()             // closes the scope, whether or not they have
	told   chan news          // room for all three facts of a life, so that it never waits for a listener
}

type news struct {
	fact fact
	err  error
}

// news returns nil, which blocks a select for ever, when nothing lives.
func (l *life) news() <-chan news {
	if l == nil {
		return nil
	}
	return l.told
}

// begin starts a life of the group. Its last news is ended or erred.
func begin(ctx context.Context, g *Group) *life {
	ctx, cancel := context.WithCancel(ctx)
	l := &life{cancel: cancel, seal: func() {}, told: make(chan news, 3)}
	s, err := scope.New(g.mgr, g.hub, scope.Options{})
	if err != nil {
		cancel()
		l.told <- news{erred, fmt.Errorf("open a scope: %w", err)}
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

func (l *life) live(ctx context.Context, g *Group, s *scope.Manager) news {
	defer s.Close()
	err := g.callSetup(s)
	if err == nil {
		err = s.Run(ctx, func() { l.told <- news{up, nil} }, func() { l.told <- news{broke, nil} })
	}
	if err != nil {
		return news{erred, err}
	}
	return news{ended, nil}
}

func (g *Group) callSetup(s *scope.Manager) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Info("setup panicked", "stack", string(debug.Stack()))
			err = fmt.Errorf("setup panicked: %v", p)
		}
	}()
	if err := g.setup(s); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	return nil
}
