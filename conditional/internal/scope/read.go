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
func (v *view) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	reader, err := v.reader(ctx, obj)
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, obj, opts...)
}

// List reads many objects; see Get.
func (v *view) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	reader, err := v.reader(ctx, list)
	if err != nil {
		return err
	}
	return reader.List(ctx, list, opts...)
}

// reader returns what reads the informer of obj, after its sync.
func (v *view) reader(ctx context.Context, obj runtime.Object) (client.Reader, error) {
	if v.life.Err() != nil {
		return nil, ErrClosed
	}
	if !isClosed(v.started) {
		return nil, &cache.ErrCacheNotStarted{}
	}
	s, err := v.slotOf(obj)
	if err != nil {
		return nil, err
	}
	if err := v.expectPresent(ctx, s); err != nil {
		return nil, err
	}
	u, err := v.readable(ctx, s)
	if err != nil {
		return nil, err
	}
	lease, parted := u.leased()
	if lease == nil {
		return nil, v.unreadable(s)
	}
	switch err := v.await(ctx, lease.Informer().HasSyncedChecker().Done(), parted); {
	case errors.Is(err, errGone) && v.life.Err() == nil:
		return nil, v.unreadable(s)
	case err != nil:
		return nil, unsynced(s, err)
	case !lease.Informer().HasSynced(): // It was stopped meanwhile.
		return nil, v.unreadable(s)
	}
	return lease.Reader(), nil
}

// readable returns the use to read from. It makes one unless the manager's cache.Options say that reads do not.
func (v *view) readable(ctx context.Context, s slot) (*use, error) {
	if !v.strict {
		return v.use(ctx, s)
	}
	u, err := v.existing(s)
	if u == nil && err == nil {
		err = &cache.ErrResourceNotCached{GVK: s.gvk}
	}
	return u, err
}

// expectPresent returns an error for an optional kind that is not there, so that a read of it creates nothing.
func (v *view) expectPresent(ctx context.Context, s slot) error {
	p := v.optional[s.gvk]
	if p == nil {
		return nil
	}
	if err := v.await(ctx, p.settled.opened, nil); err != nil {
		return unsynced(s, err)
	}
	v.mu.Lock()
	there := p.kind != nil
	v.mu.Unlock()
	if there {
		return nil
	}
	return v.unreadable(s)
}

func (u *use) leased() (*informers.Lease, <-chan struct{}) {
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	return u.lease, u.parted
}

// unreadable tells why there is no informer to read from.
func (v *view) unreadable(s slot) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.optional[s.gvk]
	switch {
	case v.closed:
		return ErrClosed
	case p == nil || p.kind != nil:
		return fmt.Errorf("read %s: %w meanwhile: read again", s.gvk, errGone)
	case p.absent:
		return noMatch(s.gvk)
	}
	return fmt.Errorf("read %s: it is not known whether the API server serves it: %s: try again later", s.gvk, p.doubt)
}

// unsynced tells why a wait for an informer ended.
func unsynced(s slot, err error) error {
	if errors.Is(err, ErrClosed) || errors.Is(err, errGone) {
		return err
	}
	return k8serrors.NewTimeoutError(fmt.Sprintf("the informer of %s has not synced: %v: check that it may be listed and watched", s.gvk, err), 0)
}
