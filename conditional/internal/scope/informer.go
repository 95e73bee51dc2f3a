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
func (v *view) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if v.life.Err() != nil {
		return nil, ErrClosed
	}
	s, err := v.slotOf(obj)
	if err != nil {
		return nil, err
	}
	return v.informer(ctx, s, opts)
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (v *view) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if v.life.Err() != nil {
		return nil, ErrClosed
	}
	obj, err := v.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return v.informer(ctx, slot{gvk, informers.FormOf(obj)}, opts)
}

func (v *view) informer(ctx context.Context, s slot, opts []cache.InformerGetOption) (cache.Informer, error) {
	u, err := v.use(ctx, s)
	if err != nil {
		return nil, err
	}
	var asked cache.InformerGetOptions
	for _, opt := range opts {
		opt(&asked)
	}
	if asked.BlockUntilSynced != nil && *asked.BlockUntilSynced {
		if err := v.await(ctx, u.HasSyncedChecker().Done(), u.gone); err != nil {
			return nil, unsynced(s, err)
		}
	}
	return u, nil
}

// RemoveInformer ends the scope's use of obj's informer. Others that share it keep it.
func (v *view) RemoveInformer(_ context.Context, obj client.Object) error {
	s, err := v.slotOf(obj)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return ErrClosed
	}
	if u := v.uses[s]; u != nil {
		u.end()
		delete(v.uses, s)
	}
	return nil
}

// AddEventHandler adds a handler that is removed when the scope ends.
func (u *use) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod is AddEventHandler with a period of its own.
func (u *use) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions is AddEventHandler with options.
func (u *use) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &registration{use: u, to: h, opts: o, synced: newLatch(), gone: make(chan struct{})}
	return r, u.register(r)
}

func (u *use) register(r *registration) error {
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	if u.view.closed || u.view.muted && !r.reading {
		return ErrClosed
	}
	if u.ended() {
		return fmt.Errorf("add a handler for %s: %w: ask the cache for it again", u.slot.gvk, errGone)
	}
	if u.lease != nil {
		if err := u.connect(r); err != nil {
			return err
		}
	}
	u.handlers = append(u.handlers, r)
	u.settle()
	return nil
}

// RemoveEventHandler removes a handler. It may be called by the handler itself.
func (u *use) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	r, ok := h.(*registration)
	if !ok || r.use != u {
		return fmt.Errorf("expected a registration of this informer of %s, found %T: pass what AddEventHandler returned", u.slot.gvk, h)
	}
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	u.remove(r)
	return nil
}

// AddIndexers adds indexers to an informer that is not shared.
func (u *use) AddIndexers(indexers toolscache.Indexers) error {
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	switch {
	case u.view.closed:
		return ErrClosed
	case !u.private || u.lease == nil:
		return lateIndex(u.slot, "AddIndexers")
	}
	return u.lease.Informer().AddIndexers(indexers)
}

// HasSynced is true when the informer has listed what there is.
func (u *use) HasSynced() bool { return toolscache.IsDone(u.HasSyncedChecker()) }

// HasSyncedChecker is done when the informer has listed what there is, and when an optional kind is not there.
func (u *use) HasSyncedChecker() toolscache.DoneChecker {
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	return u.checker()
}

// IsStopped is true when the scope, or its use of the informer, has ended.
func (u *use) IsStopped() bool { return u.ended() }

func (u *use) ended() bool { return isClosed(u.gone) }

// readings is the cache as the scope's client has it. One that reads its own writes adds handlers, and reads go on
// while the runnables end.
type readings struct{ *view }

// GetInformer returns an informer whose handlers stay as long as the scope.
func (r readings) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := r.view.GetInformer(ctx, obj, opts...)
	if u, ok := informer.(*use); ok {
		return readingUse{u}, err
	}
	return informer, err
}

type readingUse struct{ *use }

// AddEventHandler adds a handler that is removed when the scope is closed.
func (u readingUse) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &registration{use: u.use, to: h, reading: true, synced: newLatch(), gone: make(chan struct{})}
	return r, u.register(r)
}
