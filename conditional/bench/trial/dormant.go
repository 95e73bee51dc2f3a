// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/figures"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// dormant counts what groups cost whose kinds are absent all the time.
func dormant(ctx context.Context, b *bed) (figures.Round, error) {
	before, err := b.emptyManager(ctx)
	if err != nil {
		return nil, err
	}
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	groups, err := b.waiting(mgr, b.DormantKinds, newBell(b.DormantKinds))
	if err != nil {
		return nil, err
	}
	r := figures.Round{"dormant_kinds": float64(b.DormantKinds)}
	err = within(ctx, mgr, func(ctx context.Context) error {
		if err := awaitAbsence(ctx, groups); err != nil {
			return err
		}
		held, err := world.Settle(ctx)
		if err != nil {
			return err
		}
		each := float64(b.DormantKinds)
		held = held.Less(before)
		r["dormant_goroutines"], r["goroutines_per_dormant_group"] = held.Goroutines, held.Goroutines/each
		r["heap_bytes_per_dormant_group"], r["stack_bytes_per_dormant_group"] = held.Heap/each, held.Stack/each
		return b.idle(ctx, b.DormantTime, r, "")
	})
	return r, err
}

// emptyManager returns what a manager holds that has nothing to do.
func (b *bed) emptyManager(ctx context.Context) (held world.Usage, err error) {
	mgr, err := b.manager()
	if err != nil {
		return held, err
	}
	err = within(ctx, mgr, func(ctx context.Context) (err error) {
		held, err = world.Settle(ctx)
		return err
	})
	return held, err
}

// waiting makes a group for each of the first n kinds.
func (b *bed) waiting(mgr manager.Manager, n int, synced bell) ([]*conditional.Group, error) {
	var groups []*conditional.Group
	for i := range n {
		kind := world.Kind(i)
		g, err := conditional.Setup(mgr, conditional.Served(kind), watching(kind, synced), options(kind.Kind)...)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// idle counts what the process does in a span of time.
func (b *bed) idle(ctx context.Context, span time.Duration, r figures.Round, prefix string) error {
	counts := b.counter.Read()
	began := time.Now()
	used, err := world.CPU()
	if err != nil {
		return err
	}
	if err := b.rest(ctx, span); err != nil {
		return err
	}
	now, err := world.CPU()
	if err != nil {
		return err
	}
	minutes := time.Since(began).Minutes()
	added := b.counter.Read().Since(counts)
	r[prefix+"dormant_minutes"] = minutes
	r[prefix+"dormant_requests_per_minute"] = added.Requests / minutes
	r[prefix+"dormant_watch_requests_per_minute"] = added.Watches / minutes
	r[prefix+"dormant_error_logs"] = added.Errors
	r[prefix+"dormant_cpu_milliseconds_per_minute"] = float64((now - used).Microseconds()) / 1000 / minutes
	return nil
}

// rest does nothing but say so, seldom enough not to show in the CPU time.
func (b *bed) rest(ctx context.Context, span time.Duration) error {
	b.progress.Say("%d dormant kinds for %s", b.DormantKinds, span)
	began := time.Now()
	ticker := time.NewTicker(20 * time.Second)
	defer ticker.Stop()
	end := time.NewTimer(span)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			return nil
		case <-ticker.C:
			b.progress.Say("dormant for %s of %s", time.Since(began).Round(time.Second), span)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// plainDormant lets plain controllers wait for the same kinds. They wait without end, where those of a manager would
// end it after two minutes.
func plainDormant(ctx context.Context, b *bed) (figures.Round, error) {
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	r := figures.Round{}
	err = within(ctx, mgr, func(ctx context.Context) error {
		for i := range b.DormantKinds {
			kind := world.Kind(i)
			if _, err := startPlain(ctx, mgr, "bench-"+kind.Kind, newProbe(mgr, kind, newBell(1))); err != nil {
				return err
			}
		}
		if _, err := world.Settle(ctx); err != nil {
			return err
		}
		return b.idle(ctx, b.PlainDormantTime, r, "plain_")
	})
	return r, err
}
