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

// Share is one group's access to a Cache, from the start to the stop of the group. It reads the kinds whose sources
// from Watch have started.
type Share struct {
	of *Cache

	mu       sync.Mutex
	kinds    map[schema.GroupVersionKind]*sharedKind
	handlers []sharedHandler
	isOver   bool

	// running is read-locked while a handler of the group runs.
	running sync.RWMutex
	// isSilent is true if the share has ended, so events are dropped. It is guarded by running.
	isSilent bool
}

// sharedHandler is an event handler of one group. The informer may also have handlers of other groups.
type sharedHandler struct {
	informer     cache.Informer
	registration toolscache.ResourceEventHandlerRegistration
}

// ShareWith returns a group's share. mgr is the group's own manager, and the share ends when this manager stops.
func (c *Cache) ShareWith(mgr manager.Manager) (*Share, error) {
	s := &Share{of: c, kinds: map[schema.GroupVersionKind]*sharedKind{}}
	if err := mgr.Add(s); err != nil {
		return nil, fmt.Errorf("share the cache of Pods: %w", err)
	}
	return s, nil
}

// Start waits until the group stops, and then releases the kinds that its sources have acquired. No handler of the
// group runs after Start has returned.
func (s *Share) Start(ctx context.Context) error {
	<-ctx.Done()
	s.running.Lock()
	s.isSilent = true
	s.running.Unlock()
	s.mu.Lock()
	s.isOver = true
	// Reconciliations in progress can still read the kinds.
	handlers, kinds := s.handlers, slices.Collect(maps.Values(s.kinds))
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

// Get reads an object of a watched kind.
func (s *Share) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	k, err := s.findKind(obj)
	if err != nil {
		return err
	}
	return k.Get(ctx, key, obj, opts...)
}

// List lists objects of a watched kind.
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

// Watch returns a source with the events of a kind, for a controller of the group.
func (s *Share) Watch(kind client.Object, h handler.EventHandler, predicates ...predicate.Predicate) source.SyncingSource {
	return &sharedSource{share: s, kind: kind, handler: h, predicates: predicates}
}

// sharedSource acquires its kind when its controller starts, so a group whose setup fails acquires no kind.
type sharedSource struct {
	share      *Share
	kind       client.Object
	handler    handler.EventHandler
	predicates []predicate.Predicate

	source.SyncingSource // Start sets this field.
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

// String returns the name of the source in errors of its controller.
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

// sharedCache is the cache of a kind in the form that a source needs. Its handlers are removed when the group stops.
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

// AddEventHandlerWithOptions is the method with which controller-runtime's sources add their handlers.
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

// groupHandler forwards events until its group stops. This is needed because an informer still delivers pending events
// after a handler was removed.
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
