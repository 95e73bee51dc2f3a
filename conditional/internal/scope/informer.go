// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// GetInformer returns the scope's informer of obj without waiting for its sync, unless an option asks for it.
func (v *scopedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if v.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return nil, err
	}
	return v.getInformer(ctx, s, opts)
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (v *scopedCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if v.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	obj, err := v.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return v.getInformer(ctx, informerKey{gvk, informers.FormOf(obj)}, opts)
}

func (v *scopedCache) getInformer(ctx context.Context, s informerKey, opts []cache.InformerGetOption) (cache.Informer, error) {
	u, err := v.useInformer(ctx, s)
	if err != nil {
		return nil, err
	}
	var asked cache.InformerGetOptions
	for _, opt := range opts {
		opt(&asked)
	}
	if asked.BlockUntilSynced != nil && *asked.BlockUntilSynced {
		if err := v.waitDone(ctx, u.HasSyncedChecker().Done(), u.removed); err != nil {
			return nil, newUnsyncedError(s, err)
		}
	}
	return u, nil
}

// RemoveInformer gives the scope's lease of obj's informer back. Others that share it keep it.
func (v *scopedCache) RemoveInformer(_ context.Context, obj client.Object) error {
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return ErrClosed
	}
	if u := v.informers[s]; u != nil {
		u.removeAll()
		delete(v.informers, s)
	}
	return nil
}

// AddEventHandler adds a handler that is removed when the scope ends.
func (u *scopedInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod is AddEventHandler with a period of its own.
func (u *scopedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions is AddEventHandler with options.
func (u *scopedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &handlerRegistration{informer: u, handler: h, opts: o, synced: newLatch(), removed: make(chan struct{})}
	return r, u.addRegistration(r)
}

func (u *scopedInformer) addRegistration(r *handlerRegistration) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	if u.cache.isClosed || u.cache.isMuted && !r.ofClient {
		return ErrClosed
	}
	if u.isRemoved() {
		return fmt.Errorf("add a handler for %s: %w: ask the cache for it again", u.key.gvk, errInformerRemoved)
	}
	if u.lease != nil {
		if err := u.connectHandler(r); err != nil {
			return err
		}
	}
	u.handlers = append(u.handlers, r)
	u.markAbsentSynced()
	return nil
}

// RemoveEventHandler removes a handler. It may be called by the handler itself.
func (u *scopedInformer) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	r, ok := h.(*handlerRegistration)
	if !ok || r.informer != u {
		return fmt.Errorf("expected a registration of this informer of %s, found %T: pass what AddEventHandler returned", u.key.gvk, h)
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	u.removeHandler(r)
	return nil
}

// AddIndexers adds indexers to an informer that is not shared.
func (u *scopedInformer) AddIndexers(indexers toolscache.Indexers) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	switch {
	case u.cache.isClosed:
		return ErrClosed
	case !u.isPrivate || u.lease == nil:
		return newLateIndexError(u.key, "AddIndexers")
	}
	return u.lease.Informer().AddIndexers(indexers)
}

// HasSynced is true when the informer has listed what there is.
func (u *scopedInformer) HasSynced() bool { return toolscache.IsDone(u.HasSyncedChecker()) }

// HasSyncedChecker is done when the informer has listed what there is, and when an optional kind is not there.
func (u *scopedInformer) HasSyncedChecker() toolscache.DoneChecker {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.syncChecker()
}

// IsStopped is true when the scope has ended or the informer was removed from it.
func (u *scopedInformer) IsStopped() bool { return u.isRemoved() }

func (u *scopedInformer) isRemoved() bool { return isClosed(u.removed) }

// clientCache is the cache as the scope's client has it. One that reads its own writes adds handlers, and reads go on
// while the runnables end.
type clientCache struct{ *scopedCache }

// GetInformer returns an informer whose handlers stay as long as the scope.
func (r clientCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := r.scopedCache.GetInformer(ctx, obj, opts...)
	if u, ok := informer.(*scopedInformer); ok {
		return clientInformer{u}, err
	}
	return informer, err
}

type clientInformer struct{ *scopedInformer }

// AddEventHandler adds a handler that is removed when the scope is closed.
func (u clientInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &handlerRegistration{informer: u.scopedInformer, handler: h, ofClient: true, synced: newLatch(), removed: make(chan struct{})}
	return r, u.addRegistration(r)
}
