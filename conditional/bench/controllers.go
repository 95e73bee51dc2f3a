// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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
)

// syncTimes receives the moment of every sync.
type syncTimes chan time.Time

// clear drops the moments of earlier syncs.
func (s syncTimes) clear() {
	for len(s) > 0 {
		<-s
	}
}

// next waits for a sync.
func (s syncTimes) next(ctx context.Context) (at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case at = <-s:
	case <-ctx.Done():
		check(context.Cause(ctx), "wait until the sources have synced")
	}
	return at
}

// notingSource notes when it has synced. Ours and plain controllers have the same one.
type notingSource struct {
	source.SyncingSource
	synced syncTimes
}

func newNotingSource(mgr manager.Manager, kind schema.GroupVersionKind, synced syncTimes) notingSource {
	h := handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{}
	return notingSource{SyncingSource: source.Kind(mgr.GetCache(), newObject(kind, ""), &h), synced: synced}
}

// WaitForSync notes the moment at which the source has synced.
func (s notingSource) WaitForSync(ctx context.Context) error {
	err := s.SyncingSource.WaitForSync(ctx)
	if err == nil && ctx.Err() == nil {
		s.synced <- time.Now()
	}
	return err
}

func idleReconciler() reconcile.Reconciler {
	return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
}

// watchKind sets up a controller whose only source is a noting one, with the builder of controller-runtime.
func watchKind(kind schema.GroupVersionKind, synced syncTimes) conditional.SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).Named("bench-" + kind.Kind).WatchesRawSource(newNotingSource(mgr, kind, synced)).Complete(idleReconciler())
	}
}

// startPlain starts a controller beside the manager, as controller-runtime's authors advise for one that starts late.
// stop ends it and leaves its informer to the caller.
func startPlain(ctx context.Context, mgr manager.Manager, name string, s notingSource) (stop func()) {
	c, err := controller.NewUnmanaged(name, controller.Options{
		Reconciler: idleReconciler(), SkipNameValidation: new(true), Logger: mgr.GetLogger(), CacheSyncTimeout: 24 * time.Hour,
	})
	check(err, "make a plain controller")
	check(c.Watch(s), "let a plain controller watch")
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			check(err, "stop a plain controller")
		}
	}
}

// startPlainSynced is startPlain for a kind, and returns when that has synced.
func startPlainSynced(ctx context.Context, mgr manager.Manager, name string, kind schema.GroupVersionKind) (at time.Time, stop func()) {
	synced := make(syncTimes, 1)
	stop = startPlain(ctx, mgr, name, newNotingSource(mgr, kind, synced))
	return synced.next(ctx), stop
}

// runPlainOnce starts a plain controller and stops it, informer included, as soon as it has synced.
func runPlainOnce(ctx context.Context, mgr manager.Manager, kind schema.GroupVersionKind) time.Time {
	at, stop := startPlainSynced(ctx, mgr, "bench-plain", kind)
	stop()
	check(mgr.GetCache().RemoveInformer(ctx, newObject(kind, "")), "remove an informer")
	return at
}
