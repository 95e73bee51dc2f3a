// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// installers is how many CRDs are created at the same time.
const installers = 16

// storm installs the CRDs of many groups at once.
func storm(ctx context.Context, b *bed) (figures.Round, error) {
	before, err := world.Settle(ctx)
	if err != nil {
		return nil, err
	}
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	synced := newBell(2 * b.Storm)
	groups, err := b.waiting(mgr, b.Storm, synced)
	if err != nil {
		return nil, err
	}
	r := figures.Round{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		if err := awaitAbsence(ctx, groups); err != nil {
			return err
		}
		b.progress.Say("%d groups are dormant", b.Storm)
		if err := b.blow(ctx, b.Storm, synced, r, fmt.Sprintf("storm_%d", b.Storm)); err != nil {
			return err
		}
		for _, g := range groups {
			if err := awaitPhase(ctx, g, conditional.Running); err != nil {
				return err
			}
		}
		return heldBy(ctx, before, b.Storm, r, "storm_")
	})
	return r, err
}

// heldBy writes what each running controller costs.
func heldBy(ctx context.Context, before world.Usage, n int, r figures.Round, prefix string) error {
	held, err := world.Settle(ctx)
	if err != nil {
		return err
	}
	held = held.Less(before)
	r[prefix+"goroutines_per_running_group"] = held.Goroutines / float64(n)
	r[prefix+"heap_bytes_per_running_group"] = held.Heap / float64(n)
	r[prefix+"stack_bytes_per_running_group"] = held.Stack / float64(n)
	return nil
}

// blow installs n CRDs, several at a time, and writes how long after the last Established the last source has synced.
func (b *bed) blow(ctx context.Context, n int, synced bell, r figures.Round, name string) error {
	history, err := b.cluster.Watch(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.installAll(ctx, n); err != nil {
		return err
	}
	var established, last time.Time
	for i := range n {
		at, err := history.Established(ctx, world.Kind(i))
		if err != nil {
			return err
		}
		established = later(established, at)
	}
	b.progress.Say("%d CRDs were established after %.1f s", n, established.Sub(began).Seconds())
	for i := range n {
		b.progress.Count("synced", i, n)
		at, err := synced.next(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d: %w", i, n, err)
		}
		last = later(last, at)
	}
	b.progress.Say("%d controllers had synced after %.1f s", n, last.Sub(began).Seconds())
	r[name+"_established_seconds"] = seconds(began, established)
	r[name+"_synced_seconds"] = seconds(established, last)
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (b *bed) installAll(ctx context.Context, n int) error {
	next, done := make(chan int), make(chan error, installers)
	var all sync.WaitGroup
	for range installers {
		all.Go(func() {
			for i := range next {
				if err := b.cluster.Install(ctx, world.Kind(i)); err != nil {
					done <- err
					return
				}
			}
		})
	}
	var errs []error
	for i := range n {
		b.progress.Count("installed", i, n)
		select {
		case next <- i:
		case err := <-done:
			errs = append(errs, err)
		}
		if len(errs) > 0 {
			break
		}
	}
	close(next)
	all.Wait()
	close(done)
	for err := range done {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// plainStorm starts each plain controller as soon as discovery shows its kind.
func plainStorm(ctx context.Context, b *bed) (figures.Round, error) {
	before, err := world.Settle(ctx)
	if err != nil {
		return nil, err
	}
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	r := figures.Round{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		history, err := b.cluster.Watch(ctx)
		if err != nil {
			return err
		}
		synced, failed := newBell(b.PlainStorm), make(chan error, b.PlainStorm)
		for i := range b.PlainStorm {
			go func() { failed <- b.startWhenServed(ctx, mgr, history, world.Kind(i), synced) }()
		}
		if err := b.blow(ctx, b.PlainStorm, synced, r, fmt.Sprintf("plain_storm_%d", b.PlainStorm)); err != nil {
			return err
		}
		for range b.PlainStorm {
			if err := <-failed; err != nil {
				return err
			}
		}
		return heldBy(ctx, before, b.PlainStorm, r, "plain_storm_")
	})
	return r, err
}

func (b *bed) startWhenServed(ctx context.Context, mgr manager.Manager, history *world.History, kind schema.GroupVersionKind, synced bell) error {
	if _, err := history.Established(ctx, kind); err != nil {
		return err
	}
	if err := b.cluster.AwaitServed(ctx, kind); err != nil {
		return err
	}
	_, err := startPlain(ctx, mgr, "bench-"+kind.Kind, newProbe(mgr, kind, synced))
	return err
}
