// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"sync/atomic"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// shared starts and stops a group on a kind that another group watches all the time, and counts the events and the
// restarts of that neighbour.
func shared(ctx context.Context, b *bed) (figures.Round, error) {
	kind := world.Kind(0)
	mgr, err := b.prepare(ctx, kind)
	if err != nil {
		return nil, err
	}
	events := &traffic{cluster: b.cluster, kind: kind, unseen: map[string]bool{}}
	var lives atomic.Int32
	neighbour, err := conditional.Setup(mgr, conditional.Served(kind), func(mgr manager.Manager) error {
		lives.Add(1)
		return ctrl.NewControllerManagedBy(mgr).Named("bench-neighbour").WatchesRawSource(events.source(mgr)).Complete(idle())
	}, options("neighbour")...)
	if err != nil {
		return nil, err
	}
	s, err := newSwitched(mgr, "shared", kind, b.Cycles)
	if err != nil {
		return nil, err
	}
	held, r := leak{}, figures.Round{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		if err := awaitPhase(ctx, neighbour, conditional.Running); err != nil {
			return err
		}
		look := func(ctx context.Context, cycle int) error {
			events.quiet.Lock()
			defer events.quiet.Unlock()
			return held.look(ctx, cycle)
		}
		err := events.during(ctx, func() error { return b.repeat(ctx, b.Cycles, look, s.once) })
		lost, made := events.lost(ctx)
		r["shared_lost_events"], r["shared_neighbour_events"] = float64(lost), float64(made)
		return err
	})
	r["shared_neighbour_restarts"] = float64(lives.Load() - 1)
	r.Spread("shared_start", s.starts)
	held.add(r, "shared_")
	return r, err
}

// during makes events while something is done.
func (t *traffic) during(ctx context.Context, do func() error) error {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- t.run(ctx, end) }()
	err := do()
	close(end)
	return errors.Join(err, <-ended)
}

// plainShared stops a plain controller whose informer must stay, for another one uses it.
func plainShared(ctx context.Context, b *bed) (figures.Round, error) {
	kind := world.Kind(0)
	mgr, err := b.prepare(ctx, kind)
	if err != nil {
		return nil, err
	}
	held := leak{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		stop, _, err := startSynced(ctx, mgr, "bench-neighbour", kind)
		if err != nil {
			return err
		}
		err = b.repeat(ctx, b.PlainCycles, held.look, func(ctx context.Context, _ bool) error {
			stop, _, err := startSynced(ctx, mgr, "bench-plain", kind)
			if err != nil {
				return err
			}
			return stop()
		})
		return errors.Join(err, stop())
	})
	r := figures.Round{}
	held.add(r, "plain_shared_")
	return r, err
}
