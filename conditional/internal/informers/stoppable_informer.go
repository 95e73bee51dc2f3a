// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// stoppableInformer is an informer for caches of several namespaces. For each informer and each handler, such a cache
// has a goroutine that waits forever for the sync. Therefore a stoppable informer also reports a sync when it stops, or
// when the handler is removed. In that case only HasSynced is correct.
type stoppableInformer struct {
	toolscache.SharedIndexInformer
	synced  endingChecker
	stopped chan struct{}
}

func (e *stoppableInformer) RunWithContext(ctx context.Context) {
	context.AfterFunc(ctx, func() { close(e.stopped) })
	go e.synced.awaitSync(e.stopped, nil)
	e.SharedIndexInformer.RunWithContext(ctx)
}

// HasSyncedChecker is done after the sync, or after the informer has stopped without one.
func (e *stoppableInformer) HasSyncedChecker() toolscache.DoneChecker { return e.synced }

// AddEventHandlerWithOptions is the only method with which this module adds handlers to a leased informer.
func (e *stoppableInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	inner, err := e.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	if err != nil {
		return nil, err
	}
	removed := make(chan struct{})
	r := &stoppableRegistration{inner, newEndingChecker(inner), sync.OnceFunc(func() { close(removed) })}
	go r.synced.awaitSync(e.stopped, removed)
	return r, nil
}

func (e *stoppableInformer) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	r, ok := h.(*stoppableRegistration)
	if !ok {
		return fmt.Errorf("expected a registration of this informer, found %T: pass the result of AddEventHandler", h)
	}
	r.remove()
	return e.SharedIndexInformer.RemoveEventHandler(r.ResourceEventHandlerRegistration)
}

type stoppableRegistration struct {
	toolscache.ResourceEventHandlerRegistration
	synced endingChecker
	remove func()
}

// HasSyncedChecker is done after the sync, or after the informer was stopped or the handler removed without one.
func (r *stoppableRegistration) HasSyncedChecker() toolscache.DoneChecker { return r.synced }

// endingChecker waits for a sync, and can also end without one.
type endingChecker struct {
	toolscache.DoneChecker
	done chan struct{}
}

func newEndingChecker(of interface{ HasSyncedChecker() toolscache.DoneChecker }) endingChecker {
	return endingChecker{of.HasSyncedChecker(), make(chan struct{})}
}

// Done returns a channel that is closed after the sync, or when the informer has stopped or the handler was removed.
func (s endingChecker) Done() <-chan struct{} { return s.done }

func (s endingChecker) awaitSync(stopped, removed <-chan struct{}) {
	select {
	case <-s.DoneChecker.Done():
	case <-stopped:
	case <-removed:
	}
	close(s.done)
}

type newInformerFunc func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// ownedInformer runs with the context of its pooledInformer. The context of controller-runtime's cache is derived from
// a channel, and waiting for that takes an additional goroutine.
type ownedInformer struct {
	toolscache.SharedIndexInformer
	run func(logr.Logger)
}

func (o *ownedInformer) RunWithContext(ctx context.Context) { o.run(logr.FromContextOrDiscard(ctx)) }

// withWatchDraining returns a function whose informers run with ctx, and drain a watch after they have stopped it.
// controller-runtime filters metadata watches with a goroutine that blocks forever on an event that is not received. If
// many is true, the informers are stoppable informers, for caches of several namespaces.
func withWatchDraining(ctx context.Context, next newInformerFunc, many bool) newInformerFunc {
	if next == nil {
		next = toolscache.NewSharedIndexInformer
	}
	return func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if calls, ok := lw.(*toolscache.ListWatch); ok && calls.WatchFuncWithContext != nil {
			open := calls.WatchFuncWithContext
			calls.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				w, err := open(ctx, opts)
				if err != nil {
					return nil, err
				}
				return drainedWatch{w}, nil
			}
		}
		made := next(lw, obj, resync, indexers)
		if many {
			made = &stoppableInformer{made, newEndingChecker(made), make(chan struct{})}
		}
		return &ownedInformer{made, func(log logr.Logger) { made.RunWithContext(logr.NewContext(ctx, log)) }}
	}
}

type drainedWatch struct{ watch.Interface }

// Stop stops the watch, and receives the remaining events until the channel is closed, which happens shortly after
// that.
func (e drainedWatch) Stop() {
	e.Interface.Stop()
	go func() {
		for more := true; more; {
			_, more = <-e.ResultChan()
		}
	}()
}
