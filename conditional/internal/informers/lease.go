// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Lease is a share of an informer. Handlers must be removed before the release: the informer may go on for other leases.
type Lease struct {
	pool      *Pool
	entry     *pooledInformer
	isPrivate bool
	once      sync.Once
}

// Informer returns the informer, which may not have synced yet. Its HasSyncedChecker may also be done when it stops
// before it has; HasSynced is false then.
func (l *Lease) Informer() cache.Informer { return l.entry.informer }

// Reader reads what the informer has. It must not be used before the informer has synced, nor for another kind.
func (l *Lease) Reader() client.Reader { return l.entry.cache }

// IndexField adds an index to a private informer. In a shared one it would stay behind, and collide with the next.
func (l *Lease) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if !l.isPrivate {
		return errors.New("expected a private informer for an index, found a shared one")
	}
	return l.entry.cache.IndexField(ctx, obj, field, extract)
}

// Release gives the lease back. It does not wait; it may be called more than once.
func (l *Lease) Release() { l.once.Do(func() { l.pool.returnLease(l) }) }

// Stopped is closed when the informer has stopped. That never comes while a handler of it does not return.
func (l *Lease) Stopped() <-chan struct{} { return l.entry.done }
