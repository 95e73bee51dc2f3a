// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

var errShareEnded = errors.New("expected a running group of controllers, found a stopped one: call ShareWith again when the group starts")

// Share is the part that one group has in a Cache, from its start to its end. It reads the kinds for which
// Watch has returned sources.
type Share struct {
	of *Cache

	mu       sync.Mutex
	kinds    map[schema.GroupVersionKind]*sharedKind
	handlers []sharedHandler
	isOver   bool

	// running is held for reading while a handler of the group runs.
	running sync.RWMutex
	// isSilent is true once the share has ended and delivers no more events. The mutex running guards it.
	isSilent bool
}

// sharedHandler is an event handler that one group has registered with an informer that other groups also use.
type sharedHandler struct {
	informer     cache.Informer
	registration toolscache.ResourceEventHandlerRegistration
}

// ShareWith gives a group its share, which ends with the runnables of the manager that the group is set up with.
func (c *Cache) ShareWith(mgr manager.Manager) (*Share, error) {
	s := &Share{of: c, kinds: map[schema.GroupVersionKind]*sharedKind{}}
	if err := mgr.Add(s); err != nil {
		return nil, fmt.Errorf("share the cache of Pods: %w", err)
	}
	return s, nil
}

// Start waits until the group ends, and then releases the kinds that its sources have acquired. No handler of
// the group runs when it returns.
func (s *Share) Start(ctx context.Context) error {
	<-ctx.Done()
	s.running.Lock()
	s.isSilent = true
	s.running.Unlock()
	s.mu.Lock()
	s.isOver = true
	handlers, kinds := s.handlers, slices.Collect(maps.Values(s.kinds)) // The kinds stay readable for passes in flight.
	s.mu.Unlock()
	var errs []error
	for _, h := range handlers {
		errs = append(errs, h.informer.RemoveEventHandler(h.registration))
	}
	for _, k := range kinds {
		s.of.release(k)
	}
	return errors.Join(errs...)
}

// Get reads an object of a kind that is watched.
func (s *Share) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	k, err := s.findKind(obj)
	if err != nil {
		return err
	}
	return k.Get(ctx, key, obj, opts...)
}

// List lists objects of a kind that is watched.
func (s *Share) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k, err := s.findKind(list)
	if err != nil {
		return err
	}
	return k.List(ctx, list, opts...)
}

func (s *Share) findKind(of runtime.Object) (*sharedKind, error) {
	gvk, err := apiutil.GVKForObject(of, s.of.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", of, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[gvk]
	if k == nil {
		return nil, fmt.Errorf("expected a kind that the group watches, found %s: add a source of it", gvk.Kind)
	}
	return k, nil
}

// Watch returns a source of the events of a kind for a controller of the group.
func (s *Share) Watch(kind client.Object, h handler.EventHandler, predicates ...predicate.Predicate) source.SyncingSource {
	return &sharedSource{share: s, kind: kind, handler: h, predicates: predicates}
}

// sharedSource acquires its kind from the cache when its controller starts: a group whose setup fails
// acquires nothing.
type sharedSource struct {
	share      *Share
	kind       client.Object
	handler    handler.EventHandler
	predicates []predicate.Predicate

	source.SyncingSource // is made by controller-runtime, and set once started
}

// Start implements source.Source.
func (w *sharedSource) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	k, err := w.share.useKind(ctx, w.kind)
	if err != nil {
		return err
	}
	w.SyncingSource = source.Kind[client.Object](sharedCache{k, w.share}, w.kind, w.handler, w.predicates...)
	return w.SyncingSource.Start(ctx, queue)
}

// String names the source in the errors of its controller.
func (w *sharedSource) String() string { return fmt.Sprintf("shared kind source: %T", w.kind) }

func (s *Share) useKind(ctx context.Context, kind client.Object) (*sharedKind, error) {
	gvk, err := apiutil.GVKForObject(kind, s.of.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isOver:
		return nil, errShareEnded
	case s.kinds[gvk] == nil:
		if s.kinds[gvk], err = s.of.acquire(ctx, kind); err != nil {
			delete(s.kinds, gvk)
			return nil, err
		}
	}
	return s.kinds[gvk], nil
}

// sharedCache is the cache of a kind as a source uses it. Its handlers end with the group.
type sharedCache struct {
	*sharedKind
	share *Share
}

func (c sharedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.sharedKind.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return sharedInformer{informer, c.share}, nil
}

type sharedInformer struct {
	cache.Informer
	share *Share
}

// AddEventHandlerWithOptions is the method by which sources of controller-runtime add their handlers.
func (i sharedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	i.share.mu.Lock()
	defer i.share.mu.Unlock()
	if i.share.isOver {
		return nil, errShareEnded
	}
	registration, err := i.Informer.AddEventHandlerWithOptions(groupHandler{h, i.share}, options)
	if err == nil {
		i.share.handlers = append(i.share.handlers, sharedHandler{i.Informer, registration})
	}
	return registration, err
}

// groupHandler passes events on until its group ends: an informer still delivers pending events after a
// handler was removed.
type groupHandler struct {
	to    toolscache.ResourceEventHandler
	share *Share
}

// OnAdd implements toolscache.ResourceEventHandler.
func (h groupHandler) OnAdd(obj any, isInInitialList bool) {
	h.share.deliver(func() { h.to.OnAdd(obj, isInInitialList) })
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (h groupHandler) OnUpdate(before, after any) {
	h.share.deliver(func() { h.to.OnUpdate(before, after) })
}

// OnDelete implements toolscache.ResourceEventHandler.
func (h groupHandler) OnDelete(obj any) { h.share.deliver(func() { h.to.OnDelete(obj) }) }

func (s *Share) deliver(event func()) {
	s.running.RLock()
	defer s.running.RUnlock()
	if !s.isSilent {
		event()
	}
}
