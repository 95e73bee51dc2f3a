// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// Get reads one object; when the scope closes meanwhile, it returns ErrClosed rather than to wait for an informer
// that cannot sync any more. A kind that is optional and absent is a meta.NoKindMatchError.
func (v *scopedCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	reader, err := v.syncedReader(ctx, obj)
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, obj, opts...)
}

// List reads many objects; see Get.
func (v *scopedCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	reader, err := v.syncedReader(ctx, list)
	if err != nil {
		return err
	}
	return reader.List(ctx, list, opts...)
}

// syncedReader returns what reads the informer of obj, after its sync.
func (v *scopedCache) syncedReader(ctx context.Context, obj runtime.Object) (client.Reader, error) {
	if v.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	// controller-runtime's cache refuses reads before its start as well: in setup they would wait for ever.
	if !isClosed(v.started) {
		return nil, &cache.ErrCacheNotStarted{}
	}
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return nil, err
	}
	if err := v.requirePresent(ctx, s); err != nil {
		return nil, err
	}
	u, err := v.readableInformer(ctx, s)
	if err != nil {
		return nil, err
	}
	lease, parted := u.currentLease()
	if lease == nil {
		return nil, v.newUnreadableError(s)
	}
	switch err := v.waitDone(ctx, lease.Informer().HasSyncedChecker().Done(), parted); {
	case errors.Is(err, errInformerRemoved) && v.lifetime.Err() == nil:
		return nil, v.newUnreadableError(s)
	case err != nil:
		return nil, newUnsyncedError(s, err)
	case !lease.Informer().HasSynced(): // An informer that stops reports a sync too: see informers.Lease.
		return nil, v.newUnreadableError(s)
	}
	return lease.Reader(), nil
}

// readableInformer returns the informer to read from. It makes one, unless the manager's cache.Options forbid that to reads.
func (v *scopedCache) readableInformer(ctx context.Context, s informerKey) (*scopedInformer, error) {
	if !v.readsNeedInformer {
		return v.useInformer(ctx, s)
	}
	u, err := v.existingInformer(s)
	if u == nil && err == nil {
		err = &cache.ErrResourceNotCached{GVK: s.gvk}
	}
	return u, err
}

// requirePresent returns an error for an optional kind that is not there, so that a read of it creates nothing.
func (v *scopedCache) requirePresent(ctx context.Context, s informerKey) error {
	p := v.optional[s.gvk]
	if p == nil {
		return nil
	}
	if err := v.waitDone(ctx, p.settled.opened, nil); err != nil {
		return newUnsyncedError(s, err)
	}
	v.mu.Lock()
	there := p.kind != nil
	v.mu.Unlock()
	if there {
		return nil
	}
	return v.newUnreadableError(s)
}

func (u *scopedInformer) currentLease() (*informers.Lease, <-chan struct{}) {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.lease, u.leaseEnded
}

// newUnreadableError explains why there is no informer to read from.
func (v *scopedCache) newUnreadableError(s informerKey) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.optional[s.gvk]
	switch {
	case v.isClosed:
		return ErrClosed
	case p == nil || p.kind != nil:
		return fmt.Errorf("read %s: %w meanwhile: read again", s.gvk, errInformerRemoved)
	case p.isAbsent:
		return newNoMatchError(s.gvk)
	}
	return fmt.Errorf("read %s: it is not known whether the API server serves it: %s: try again later", s.gvk, p.doubt)
}

// newUnsyncedError explains why a wait for an informer ended.
func newUnsyncedError(s informerKey, err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, errInformerRemoved) {
		return err
	}
	return k8serrors.NewTimeoutError(fmt.Sprintf("the informer of %s has not synced: %v: check that it may be listed and watched", s.gvk, err), 0)
}
