// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// switched is a group behind a switch, with what its starts and stops took.
type switched struct {
	group         *conditional.Group
	says          chan bool
	synced        bell
	starts, stops []float64
}

// newSwitched has room for all samples, so that they do not look like a leak.
func newSwitched(mgr manager.Manager, name string, kind schema.GroupVersionKind, samples int) (*switched, error) {
	s := &switched{says: make(chan bool), synced: newBell(10), starts: make([]float64, 0, samples), stops: make([]float64, 0, samples)}
	var err error
	s.group, err = conditional.Setup(mgr, conditional.Signal(name, s.says), watching(kind, s.synced), options(name)...)
	return s, err
}

// once starts the group, until its sources have synced, and stops it, until it is dormant.
func (s *switched) once(ctx context.Context, warm bool) error {
	s.synced.drop()
	began := time.Now()
	if err := s.say(ctx, true); err != nil {
		return err
	}
	at, err := s.synced.next(ctx)
	if err != nil {
		return err
	}
	if err := awaitPhase(ctx, s.group, conditional.Running); err != nil {
		return err
	}
	ending := time.Now()
	if err := s.say(ctx, false); err != nil {
		return err
	}
	if err := awaitPhase(ctx, s.group, conditional.Dormant); err != nil {
		return err
	}
	if warm {
		s.starts = append(s.starts, seconds(began, at))
		s.stops = append(s.stops, time.Since(ending).Seconds())
	}
	return nil
}

func (s *switched) say(ctx context.Context, on bool) error {
	select {
	case s.says <- on:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// restarts starts and stops a group on a kind that is served all the time, and that nobody else watches.
func restarts(ctx context.Context, b *bed) (figures.Round, error) {
	kind := world.Kind(0)
	mgr, err := b.prepare(ctx, kind)
	if err != nil {
		return nil, err
	}
	s, err := newSwitched(mgr, "restarts", kind, b.Cycles)
	if err != nil {
		return nil, err
	}
	held := leak{}
	err = within(ctx, mgr, func(ctx context.Context) error { return b.repeat(ctx, b.Cycles, held.look, s.once) })
	r := figures.Round{}
	r.Spread("served_start", s.starts)
	r.Spread("served_stop", s.stops)
	held.add(r, "")
	return r, err
}

// plainRestarts makes a plain controller anew for each start, and removes its informer at each stop.
func plainRestarts(ctx context.Context, b *bed) (figures.Round, error) {
	kind := world.Kind(0)
	mgr, err := b.prepare(ctx, kind)
	if err != nil {
		return nil, err
	}
	starts, held := make([]float64, 0, b.PlainCycles), leak{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		return b.repeat(ctx, b.PlainCycles, held.look, func(ctx context.Context, warm bool) error {
			began := time.Now()
			at, err := plainLife(ctx, mgr, kind)
			if warm {
				starts = append(starts, seconds(began, at))
			}
			return err
		})
	})
	r := figures.Round{}
	r.Spread("plain_served_start", starts)
	held.add(r, "plain_")
	return r, err
}
