// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scopedCache never polls: GetInformer returns at once, and WaitForCacheSync waits on channels, for the informers
// and handlers of this scope only. controller-runtime's own start of a controller costs 100 ms per poll.
type scopedCache struct {
	cache.Cache
	life    context.Context
	started chan struct{}

	mu      sync.Mutex
	pending []toolscache.DoneChecker
}

// Start runs the informers until ctx ends, and returns after the last one has.
func (c *scopedCache) Start(ctx context.Context) error {
	close(c.started)
	return c.Cache.Start(ctx)
}

// Get reads one object; when the scope closes meanwhile, it returns ErrClosed rather than to wait for an informer
// that cannot sync any more.
func (c *scopedCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.guard(ctx, func(ctx context.Context) error { return c.Cache.Get(ctx, key, obj, opts...) })
}

// List reads many objects; see Get.
func (c *scopedCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.guard(ctx, func(ctx context.Context) error { return c.Cache.List(ctx, list, opts...) })
}

// IndexField adds an index to the scope's informer of obj.
func (c *scopedCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	return c.guard(ctx, func(ctx context.Context) error { return c.Cache.IndexField(ctx, obj, field, extract) })
}

// RemoveInformer ends the scope's informer of obj.
func (c *scopedCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	return c.guard(ctx, func(ctx context.Context) error { return c.Cache.RemoveInformer(ctx, obj) })
}

// GetInformer returns the scope's informer of obj without waiting for its sync, unless an option asks for it.
func (c *scopedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer(ctx, opts, func(ctx context.Context, opts []cache.InformerGetOption) (cache.Informer, error) {
		return c.Cache.GetInformer(ctx, obj, opts...)
	})
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (c *scopedCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer(ctx, opts, func(ctx context.Context, opts []cache.InformerGetOption) (cache.Informer, error) {
		return c.Cache.GetInformerForKind(ctx, gvk, opts...)
	})
}

func (c *scopedCache) informer(ctx context.Context, opts []cache.InformerGetOption, get func(context.Context, []cache.InformerGetOption) (cache.Informer, error)) (cache.Informer, error) {
	var found cache.Informer
	err := c.guard(ctx, func(ctx context.Context) (err error) {
		found, err = get(ctx, slices.Concat([]cache.InformerGetOption{cache.BlockUntilSynced(false)}, opts))
		return err
	})
	if err != nil {
		return nil, err
	}
	c.expect(found.HasSyncedChecker())
	return &informer{Informer: found, cache: c}, nil
}

// WaitForCacheSync returns true when all informers and handlers of the scope have synced, false when ctx or the
// scope ends before.
func (c *scopedCache) WaitForCacheSync(ctx context.Context) bool {
	if !c.await(ctx, c.started) {
		return false
	}
	c.mu.Lock()
	pending := slices.Clone(c.pending)
	c.mu.Unlock()
	for _, p := range pending {
		if !c.await(ctx, p.Done()) {
			return false
		}
	}
	return true
}

func (c *scopedCache) await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-c.life.Done():
	}
	return false
}

func (c *scopedCache) expect(p toolscache.DoneChecker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(slices.DeleteFunc(c.pending, toolscache.IsDone), p)
}

// guard runs one use of the cache with a context that also ends with the scope.
func (c *scopedCache) guard(ctx context.Context, use func(context.Context) error) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := use(ctx)
	if err != nil && c.life.Err() != nil {
		return fmt.Errorf("%w (%w)", ErrClosed, err)
	}
	return err
}

// informer notes the handlers that the scope has yet to see synced.
type informer struct {
	cache.Informer
	cache *scopedCache
}

func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.noted(i.Informer.AddEventHandler(h))
}

func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.noted(i.Informer.AddEventHandlerWithResyncPeriod(h, resync))
}

func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.noted(i.Informer.AddEventHandlerWithOptions(h, o))
}

func (i *informer) noted(r toolscache.ResourceEventHandlerRegistration, err error) (toolscache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		i.cache.expect(r.HasSyncedChecker())
	}
	return r, err
}

// newInformer makes informers that empty a watch when they stop it: controller-runtime puts a filter into metadata
// watches that would wait for ever for somebody to take its last event.
func newInformer(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if calls, ok := lw.(*toolscache.ListWatch); ok && calls.WatchFuncWithContext != nil {
		open := calls.WatchFuncWithContext
		calls.WatchFuncWithContext = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := open(ctx, opts)
			if err != nil {
				return nil, err
			}
			return emptied{w}, nil
		}
	}
	return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
}

type emptied struct{ watch.Interface }

// Stop ends the watch, whose channel closes soon after.
func (e emptied) Stop() {
	e.Interface.Stop()
	go func() {
		for more := true; more; {
			_, more = <-e.ResultChan()
		}
	}()
}
