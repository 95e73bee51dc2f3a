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

// installs creates and deletes a CRD again and again: from Established, as a watch sees it, until the group's sources
// have synced; from the end of the CRD, as a watch sees it, until the group is dormant.
func installs(ctx context.Context, b *bed) (figures.Round, error) {
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	kind, synced := world.Kind(0), newBell(10)
	group, err := conditional.Setup(mgr, conditional.Served(kind), watching(kind, synced), options("installs")...)
	if err != nil {
		return nil, err
	}
	var starts, stops []float64
	err = within(ctx, mgr, func(ctx context.Context) error {
		history, err := b.cluster.Watch(ctx)
		if err != nil {
			return err
		}
		if err := awaitAbsence(ctx, []*conditional.Group{group}); err != nil {
			return err
		}
		for i := range b.Installs {
			b.progress.Count("CRDs", i, b.Installs)
			synced.drop()
			start, err := b.install(ctx, history, kind, synced)
			if err != nil {
				return err
			}
			stop, err := b.uninstall(ctx, history, kind, group)
			if err != nil {
				return err
			}
			starts, stops = append(starts, start), append(stops, stop)
		}
		return nil
	})
	r := figures.Round{"installs": float64(len(starts))}
	r.Spread("established_to_synced", starts)
	r.Spread("gone_to_stopped", stops)
	return r, err
}

func (b *bed) install(ctx context.Context, history *world.History, kind schema.GroupVersionKind, synced bell) (float64, error) {
	if err := b.cluster.Install(ctx, kind); err != nil {
		return 0, err
	}
	established, err := history.Established(ctx, kind)
	if err != nil {
		return 0, err
	}
	at, err := synced.next(ctx)
	return seconds(established, at), err
}

func (b *bed) uninstall(ctx context.Context, history *world.History, kind schema.GroupVersionKind, group *conditional.Group) (float64, error) {
	if err := awaitPhase(ctx, group, conditional.Running); err != nil {
		return 0, err
	}
	if err := b.cluster.Uninstall(ctx, kind); err != nil {
		return 0, err
	}
	if err := awaitPhase(ctx, group, conditional.Dormant); err != nil {
		return 0, err
	}
	dormant := time.Now()
	gone, err := history.Gone(ctx, kind)
	return seconds(gone, dormant), err
}

// plainInstalls starts a plain controller as soon as discovery shows the kind, and so spares it the 10 s that it would
// pause after having looked too early.
func plainInstalls(ctx context.Context, b *bed) (figures.Round, error) {
	mgr, err := b.manager()
	if err != nil {
		return nil, err
	}
	var starts []float64
	err = within(ctx, mgr, func(ctx context.Context) error {
		history, err := b.cluster.Watch(ctx)
		if err != nil {
			return err
		}
		for i := range b.PlainInstalls {
			b.progress.Count("CRDs", i, b.PlainInstalls)
			start, err := b.plainInstall(ctx, mgr, history)
			if err != nil {
				return err
			}
			starts = append(starts, start)
		}
		return nil
	})
	r := figures.Round{"plain_installs": float64(len(starts))}
	r.Spread("plain_established_to_synced", starts)
	return r, err
}

func (b *bed) plainInstall(ctx context.Context, mgr manager.Manager, history *world.History) (float64, error) {
	kind := world.Kind(0)
	if err := b.cluster.Install(ctx, kind); err != nil {
		return 0, err
	}
	established, err := history.Established(ctx, kind)
	if err != nil {
		return 0, err
	}
	if err := b.cluster.AwaitServed(ctx, kind); err != nil {
		return 0, err
	}
	at, err := plainLife(ctx, mgr, kind)
	if err != nil {
		return 0, err
	}
	if err := b.cluster.Uninstall(ctx, kind); err != nil {
		return 0, err
	}
	_, err = history.Gone(ctx, kind)
	return seconds(established, at), err
}

// plainLife starts a plain controller and stops it, informer included, as soon as it has synced.
func plainLife(ctx context.Context, mgr manager.Manager, kind schema.GroupVersionKind) (time.Time, error) {
	stop, at, err := startSynced(ctx, mgr, "bench-plain", kind)
	if err != nil {
		return at, err
	}
	if err := stop(); err != nil {
		return at, err
	}
	return at, removeInformer(ctx, mgr, kind)
}
