// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

var errInformerRemoved = errors.New("the informer was removed")

// scopedInformer is the informer of a kind in one form as a scope has it. It leases the real informer, for an optional kind
// only while that is served. Its state is guarded by the cache's lock.
type scopedInformer struct {
	cache     *scopedCache
	key       informerKey
	optional  *optionalKind // nil for a kind that is always there
	isPrivate bool          // its informer is not shared, because it is indexed

	lease      *informers.Lease // nil while there is none
	leaseEnded chan struct{}    // closed when the lease ends
	indexes    []fieldIndex
	handlers   []*handlerRegistration
	synced     *closedOnceLatch // of an optional kind
	removed    chan struct{}    // closed when the scope removes it
}

type fieldIndex struct {
	obj     client.Object
	field   string
	extract client.IndexerFunc
}

// useInformer returns the scope's informer, a new one if there is none.
func (v *scopedCache) useInformer(ctx context.Context, s informerKey) (*scopedInformer, error) {
	if u, err := v.existingInformer(s); u != nil || err != nil {
		return u, err
	}
	return v.addInformer(ctx, s, false)
}

func (v *scopedCache) existingInformer(s informerKey) (*scopedInformer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return nil, ErrClosed
	}
	return v.informers[s], nil
}

// addInformer makes the scope's informer, unless another goroutine was faster.
func (v *scopedCache) addInformer(ctx context.Context, s informerKey, private bool) (*scopedInformer, error) {
	// The look-up may ask the API server, so it comes before the lock.
	optional := v.optional[s.gvk]
	var kind informers.InformerKind
	if optional == nil {
		var err error
		if kind, err = v.findKind(ctx, s.gvk); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return nil, ErrClosed
	}
	if u := v.informers[s]; u != nil {
		return u, nil
	}
	u := &scopedInformer{cache: v, key: s, optional: optional, isPrivate: private, synced: newLatch(), removed: make(chan struct{})}
	if optional != nil && optional.kind != nil {
		kind = *optional.kind
	}
	// An optional kind that is absent now gets its lease when it comes.
	if kind.Plural != "" {
		if err := u.attachLease(kind); err != nil {
			return nil, err
		}
	}
	u.markAbsentSynced()
	v.informers[s] = u
	return u, nil
}

// attachLease takes a lease of the kind's informer and puts indexes and handlers to it.
func (u *scopedInformer) attachLease(kind informers.InformerKind) error {
	kind.Form = u.key.form
	lease, err := u.cache.state.Informers.Lease(u.cache.lifetime, kind, u.isPrivate)
	if err != nil {
		return err
	}
	u.lease, u.leaseEnded = lease, make(chan struct{})
	for _, i := range u.indexes {
		if err := lease.IndexField(u.cache.lifetime, i.obj, i.field, i.extract); err != nil {
			u.detachLease()
			return fmt.Errorf("index field %s of %s: %w", i.field, kind.GVK, err)
		}
	}
	u.openLatchOnSync(lease.Informer().HasSyncedChecker(), u.synced)
	for _, r := range u.handlers {
		if err := u.connectHandler(r); err != nil {
			u.detachLease()
			return err
		}
	}
	return nil
}

// detachLease takes the handlers off and gives the lease back.
func (u *scopedInformer) detachLease() {
	if u.lease == nil {
		return
	}
	for _, r := range u.handlers {
		u.disconnectHandler(r)
	}
	u.lease.Release()
	u.lease = nil
	close(u.leaseEnded)
}

// removeAll takes the informer out of the scope for good.
func (u *scopedInformer) removeAll() {
	if u.isRemoved() {
		return
	}
	for _, r := range slices.Clone(u.handlers) {
		u.removeHandler(r)
	}
	u.detachLease()
	close(u.removed)
}

// openLatchOnSync opens the latch of an optional kind's informer or handler when that has synced, or when the kind went before.
func (u *scopedInformer) openLatchOnSync(sync toolscache.DoneChecker, to *closedOnceLatch) {
	if u.optional == nil || to.isOpen() {
		return
	}
	parted := u.leaseEnded
	go func() {
		select {
		case <-sync.Done():
		case <-parted:
		}
		to.openLatch()
	}()
}

// markAbsentSynced lets an optional kind that is not there count as synced, once that is known.
func (u *scopedInformer) markAbsentSynced() {
	if u.optional == nil || u.lease != nil || !u.optional.settled.isOpen() {
		return
	}
	u.synced.openLatch()
	for _, r := range u.handlers {
		r.synced.openLatch()
	}
}

// pendingSyncs are the syncs of the informer and then of its handlers.
func (u *scopedInformer) pendingSyncs() []pendingSync {
	all := []pendingSync{{u.syncChecker().Done(), u.removed}}
	for _, r := range u.handlers {
		all = append(all, pendingSync{r.syncChecker().Done(), r.removed})
	}
	return all
}

func (u *scopedInformer) syncChecker() toolscache.DoneChecker {
	if u.optional == nil && u.lease != nil {
		return u.lease.Informer().HasSyncedChecker()
	}
	return namedLatch{u.synced, "informer of " + u.key.gvk.String()}
}
