// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// bell rings with the moment of every sync.
type bell chan time.Time

func newBell(room int) bell { return make(bell, room) }

// drop forgets what has rung so far.
func (b bell) drop() {
	for len(b) > 0 {
		<-b
	}
}

// next waits for a ring.
func (b bell) next(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, world.Patience)
	defer cancel()
	select {
	case at := <-b:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait until the sources have synced: %w", context.Cause(ctx))
	}
}

// probe is a source that rings when it has synced. Ours and plain controllers have the same one.
type probe struct {
	source.SyncingSource
	synced bell
}

func newProbe(mgr manager.Manager, kind schema.GroupVersionKind, synced bell) probe {
	h := handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}
	return probe{SyncingSource: source.Kind(mgr.GetCache(), world.Object(kind, ""), &h), synced: synced}
}

// WaitForSync rings after the source has synced.
func (p probe) WaitForSync(ctx context.Context) error {
	err := p.SyncingSource.WaitForSync(ctx)
	if err == nil && ctx.Err() == nil {
		p.synced <- time.Now()
	}
	return err
}

func idle() reconcile.Reconciler {
	return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
}

// watching sets up a controller whose only source is the probe, with the builder of controller-runtime.
func watching(kind schema.GroupVersionKind, synced bell) conditional.SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named("bench-" + kind.Kind).WatchesRawSource(newProbe(mgr, kind, synced)).Complete(idle())
	}
}

// startPlain starts a controller beside the manager, as its authors advise those who must start one late. Stop ends it
// and leaves its informer to the caller.
func startPlain(ctx context.Context, mgr manager.Manager, name string, p probe) (stop func() error, err error) {
	c, err := controller.NewUnmanaged(name, controller.Options{
		Reconciler: idle(), SkipNameValidation: new(true), Logger: mgr.GetLogger(), CacheSyncTimeout: 24 * time.Hour,
	})
	if err != nil {
		return nil, fmt.Errorf("make a plain controller: %w", err)
	}
	if err := c.Watch(p); err != nil {
		return nil, fmt.Errorf("let a plain controller watch: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("stop a plain controller: %w", err)
		}
		return nil
	}, nil
}

// startSynced is startPlain for a kind, and returns when that has synced.
func startSynced(ctx context.Context, mgr manager.Manager, name string, kind schema.GroupVersionKind) (stop func() error, at time.Time, err error) {
	synced := newBell(1)
	if stop, err = startPlain(ctx, mgr, name, newProbe(mgr, kind, synced)); err != nil {
		return nil, at, err
	}
	at, err = synced.next(ctx)
	return stop, at, err
}

// removeInformer drops the manager's informer of a kind, which nobody may use any more.
func removeInformer(ctx context.Context, mgr manager.Manager, kind schema.GroupVersionKind) error {
	if err := mgr.GetCache().RemoveInformer(ctx, world.Object(kind, "")); err != nil {
		return fmt.Errorf("remove an informer: %w", err)
	}
	return nil
}
