// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

var errInformerRemoved = errors.New("the informer was removed")

// scopedInformer is the informer for one form of a kind within a scope. It leases the actual informer; for an optional
// kind, only while the kind is served. The cache's lock guards its state.
type scopedInformer struct {
	cache    *scopedCache
	key      informers.InformerKind // key has only the kind and the form, not the plural, scope and UID
	optional *optionalKind          // optional is nil for a kind that is not optional
	indexes  []*informers.FieldIndex

	lease      *informers.Lease // lease may be nil
	leaseEnded chan struct{}    // leaseEnded is closed when the lease ends
	handlers   []*handlerRegistration
	synced     *closedOnceLatch
	removed    chan struct{} // removed is closed when the scope removes the informer
	isEmptied  bool          // isEmptied is true if the kind's CRD was deleted with all objects
}

func (v *scopedCache) existingInformer(s informers.InformerKind) (*scopedInformer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return nil, ErrClosed
	}
	return v.informers[s], nil
}

// useInformer returns the scope's informer, and creates it if necessary. The informer has the indexes of the scope, and
// those that were requested outside of groups.
func (v *scopedCache) useInformer(ctx context.Context, s informers.InformerKind) (*scopedInformer, error) {
	u, err := v.existingInformer(s)
	if u != nil || err != nil {
		return u, err
	}
	inherited := v.managerCache.IndexesOf(s)
	optional := v.optional[s.GVK]
	var kind informers.InformerKind
	// The lookup may query the API server, so it comes before the lock.
	if optional == nil {
		if kind, err = v.findKind(ctx, s.GVK); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return nil, ErrClosed
	}
	if u := v.informers[s]; u != nil {
		return u, nil // Another goroutine has created the informer.
	}
	u = &scopedInformer{cache: v, key: s, optional: optional, synced: newLatch(), removed: make(chan struct{})}
	u.indexes = informers.MergeIndexes(v.indexes[s], inherited)
	if optional != nil && optional.kind != nil {
		kind = *optional.kind
	}
	// An absent optional kind gets its lease when it is served.
	if kind.Plural != "" {
		if err := u.attachLease(kind); err != nil {
			return nil, err
		}
	}
	u.markAbsentSynced()
	v.informers[s] = u
	return u, nil
}

// attachLease leases the kind's informer with the indexes, and adds the handlers to it.
func (u *scopedInformer) attachLease(kind informers.InformerKind) error {
	kind.Form = u.key.Form
	lease, err := u.cache.pool.Lease(u.cache.lifetime, kind, u.indexes)
	if err != nil {
		return err
	}
	u.lease, u.leaseEnded = lease, make(chan struct{})
	u.openLatchOnSync(lease.Informer().HasSyncedChecker(), u.synced)
	for _, r := range u.handlers {
		if err := u.connectHandler(r); err != nil {
			u.detachLease()
			return err
		}
	}
	return nil
}

// detachLease disconnects the handlers and releases the lease.
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

// removeAll removes all handlers, releases the lease, and marks the informer as stopped. A stopped informer is not used
// again.
func (u *scopedInformer) removeAll() {
	if u.IsStopped() {
		return
	}
	for _, r := range slices.Clone(u.handlers) {
		u.removeHandler(r)
	}
	u.detachLease()
	close(u.removed)
	u.synced.openLatch()
}

// openLatchOnSync opens the latch of an informer or handler when it has synced, or when the lease has ended.
func (u *scopedInformer) openLatchOnSync(sync toolscache.DoneChecker, to *closedOnceLatch) {
	if to.isOpen() {
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

// markAbsentSynced makes an optional kind without a lease count as synced, once there is a verdict about it.
func (u *scopedInformer) markAbsentSynced() {
	if u.optional == nil || u.lease != nil || !u.optional.settled.isOpen() {
		return
	}
	u.synced.openLatch()
	for _, r := range u.handlers {
		r.synced.openLatch()
	}
}

// GetInformer returns the scope's informer for obj. As in any cache, it waits for the sync once the scope runs, unless
// an option disables that.
func (v *scopedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	s, err := informers.IdentifyObject(obj, v.scheme)
	if err != nil {
		return nil, err
	}
	return v.indexedInformer(ctx, s, opts)
}

func (v *scopedCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := v.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return v.indexedInformer(ctx, informers.InformerKind{GVK: gvk, Form: informers.FormOf(obj)}, opts)
}

func (v *scopedCache) syncedInformer(ctx context.Context, s informers.InformerKind, opts []cache.InformerGetOption) (*scopedInformer, error) {
	if v.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	u, err := v.useInformer(ctx, s)
	if err != nil {
		return nil, err
	}
	var asked cache.InformerGetOptions
	for _, opt := range opts {
		opt(&asked)
	}
	if isClosed(v.started) && (asked.BlockUntilSynced == nil || *asked.BlockUntilSynced) {
		if err := v.waitDone(ctx, u.synced.opened, nil); err != nil {
			return nil, newUnsyncedError(s, err)
		}
		if u.IsStopped() {
			return nil, v.newUnreadableError(s)
		}
	}
	return u, nil
}

// indexedInformer is a SharedIndexInformer, as callers of controller-runtime's caches expect. The methods that
// scopedInformer does not have, for example those of the store, are the methods of the leased informer.
type indexedInformer struct {
	*scopedInformer
	unguarded
}

// GetIndexer returns the store of the leased informer. In it, the scope's indexes have the names that the scope has
// chosen.
func (i indexedInformer) GetIndexer() toolscache.Indexer {
	store := i.unguarded.GetIndexer()
	if lease, _ := i.currentLease(); lease != nil {
		return lease.Indexer(store)
	}
	return store
}

// unguarded embeds the leased informer one level deeper than the scopedInformer, so the methods of the scopedInformer
// take precedence.
type unguarded struct{ toolscache.SharedIndexInformer }

// indexedInformer returns an indexedInformer, or the scopedInformer if it has no permanent lease or no single store.
func (v *scopedCache) indexedInformer(ctx context.Context, s informers.InformerKind, opts []cache.InformerGetOption) (cache.Informer, error) {
	u, err := v.syncedInformer(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	lease, _ := u.currentLease()
	if lease == nil || u.optional != nil {
		return u, nil
	}
	if inner, ok := lease.Informer().(toolscache.SharedIndexInformer); ok {
		return indexedInformer{u, unguarded{inner}}, nil
	}
	return u, nil
}

// RemoveInformer returns the scope's lease of obj's informer. Other users of a shared informer are not affected.
func (v *scopedCache) RemoveInformer(_ context.Context, obj client.Object) error {
	s, err := informers.IdentifyObject(obj, v.scheme)
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

func (u *scopedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

func (u *scopedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &handlerRegistration{informer: u, handler: h, opts: o, synced: newLatch()}
	return r, u.addRegistration(r)
}

func (u *scopedInformer) addRegistration(r *handlerRegistration) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	if u.cache.isClosed || u.cache.isMuted && !r.ofClient {
		return ErrClosed
	}
	if u.IsStopped() {
		return fmt.Errorf("add a handler for %s: %w; get a new informer from the cache", u.key.GVK, errInformerRemoved)
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

// RemoveEventHandler removes a handler. The handler itself may call it.
func (u *scopedInformer) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	r, ok := h.(*handlerRegistration)
	if !ok || r.informer != u {
		return fmt.Errorf("expected a registration of this informer of %s, found %T: "+
			"pass the result of AddEventHandler", u.key.GVK, h)
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	u.removeHandler(r)
	return nil
}

// AddIndexers adds indexes that only this scope can use. It returns an error for an optional kind, because the store of
// an optional kind is replaced.
func (u *scopedInformer) AddIndexers(indexers toolscache.Indexers) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	switch {
	case u.cache.isClosed:
		return ErrClosed
	case u.lease == nil || u.optional != nil:
		return fmt.Errorf("expected AddIndexers for a kind that is not optional, found %s: call mgr.GetFieldIndexer().IndexField", u.key.GVK)
	}
	return lateIndexError(u.key, "AddIndexers", u.lease.AddIndexers(indexers))
}

// addIndex adds an index to an informer that is in use.
func (u *scopedInformer) addIndex(ctx context.Context, i *informers.FieldIndex) error {
	if u.lease != nil {
		if err := lateIndexError(u.key, "IndexField", u.lease.AddIndex(ctx, i)); err != nil {
			return err
		}
	}
	u.indexes = informers.MergeIndexes([]*informers.FieldIndex{i}, u.indexes)
	return nil
}

func (u *scopedInformer) HasSynced() bool { return u.synced.isOpen() }

// HasSyncedChecker is done when the informer has listed the existing objects, or when an optional kind is not known to
// be served.
func (u *scopedInformer) HasSyncedChecker() toolscache.DoneChecker {
	return namedLatch{u.synced, "informer of " + u.key.GVK.String()}
}

// IsStopped returns true when the scope has ended or has removed the informer.
func (u *scopedInformer) IsStopped() bool { return isClosed(u.removed) }

// clientCache is the cache for the scope's client. A client that reads its own writes adds handlers, which must remain
// while the runnables end, because reads continue.
type clientCache struct{ *scopedCache }

// GetInformer returns an informer whose handlers live as long as the scope.
func (r clientCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	s, err := informers.IdentifyObject(obj, r.scheme)
	if err != nil {
		return nil, err
	}
	u, err := r.syncedInformer(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	return clientInformer{u}, nil
}

type clientInformer struct{ *scopedInformer }

// AddEventHandler adds a handler that is removed when the scope is closed.
func (u clientInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &handlerRegistration{informer: u.scopedInformer, handler: h, ofClient: true, synced: newLatch()}
	return r, u.addRegistration(r)
}

// IndexField adds an index for the scope's informer of obj. Other scopes with the same informer cannot use the index,
// and may index the same field in another way.
func (v *scopedCache) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	s, err := informers.IdentifyObject(obj, v.scheme)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return ErrClosed
	}
	index := &informers.FieldIndex{Object: obj, Field: field, Extract: extract}
	all, err := informers.AppendIndex(v.indexes[s], index)
	if err != nil {
		return err
	}
	if u := v.informers[s]; u != nil {
		if err := u.addIndex(v.lifetime, index); err != nil {
			return err
		}
	}
	v.indexes[s] = all
	return nil
}

// lateIndexError returns an error with the next step if an informer of a plain controller cannot accept an index. It
// returns any other error unchanged.
func lateIndexError(s informers.InformerKind, call string, err error) error {
	if !errors.Is(err, informers.ErrBorrowed) {
		return err
	}
	return fmt.Errorf("expected %s before the first use of %s in this setup, found the informer of a plain controller in use: "+
		"call mgr.GetFieldIndexer().IndexField first, before controllers are built and objects read", call, s.GVK)
}

// handlerRegistration is one handler of the scope. It is connected to one leased informer after another, and outlives
// each of them.
type handlerRegistration struct {
	informer *scopedInformer
	handler  toolscache.ResourceEventHandler
	opts     toolscache.HandlerOptions
	ofClient bool // ofClient is true if the client added it, so it stays until the scope is closed
	synced   *closedOnceLatch

	// The cache's lock guards these fields.
	inner toolscache.ResourceEventHandlerRegistration // inner is nil while it is not connected
	gate  *eventGate                                  // gate is the gate of the last connection
}

// knowsObjects is called with the cache's lock held.
func (r *handlerRegistration) knowsObjects() bool { return r.gate != nil && r.gate.knowsObjects() }

func (r *handlerRegistration) HasSynced() bool { return r.synced.isOpen() }

// HasSyncedChecker is done when the handler has received the first list, or when an optional kind is not known to be
// served.
func (r *handlerRegistration) HasSyncedChecker() toolscache.DoneChecker {
	return namedLatch{r.synced, "handler of " + r.informer.key.GVK.String()}
}

func (u *scopedInformer) connectHandler(r *handlerRegistration) error {
	d := &eventGate{drained: make(chan struct{})}
	// The handler may still be handling an event of the last connection, and must not receive two events at the same
	// time.
	if r.gate != nil {
		d.previous = r.gate.drained
	}
	inner, err := u.lease.Informer().AddEventHandlerWithOptions(gatedHandler{d, r.handler}, r.opts)
	if err != nil {
		return err
	}
	r.inner, r.gate = inner, d
	v := u.cache
	v.gates = append(slices.DeleteFunc(v.gates, (*eventGate).isDrained), d)
	u.openLatchOnSync(inner.HasSyncedChecker(), r.synced)
	return nil
}

// disconnectHandler removes the handler from the informer. After that no new event is delivered, but the handling of a
// delivered event continues.
func (u *scopedInformer) disconnectHandler(r *handlerRegistration) {
	if r.inner == nil {
		return
	}
	// RemoveEventHandler does not wait, and client-go still delivers queued events. The closed gate drops them.
	r.gate.closeGate()
	if err := u.lease.Informer().RemoveEventHandler(r.inner); err != nil {
		u.cache.reportError(err)
	}
	r.inner = nil
}

func (u *scopedInformer) removeHandler(r *handlerRegistration) {
	u.disconnectHandler(r)
	u.handlers = slices.DeleteFunc(u.handlers, func(other *handlerRegistration) bool { return other == r })
	r.synced.openLatch() // Nothing may wait for this handler any more.
}

// eventGate passes events to a handler until the gate is closed.
type eventGate struct {
	previous <-chan struct{} // closed when the gate of the previous connection is drained; until then, events wait
	drained  chan struct{}   // drained is closed when the gate is closed and no event is being handled

	mu       sync.Mutex
	inFlight int
	objects  int // objects is the number of objects that the handler has: those added minus those deleted
	closed   bool
}

func (d *eventGate) handleEvent(more int, handle func()) {
	if d.previous != nil {
		<-d.previous
	}
	if !d.beginEvent() {
		return
	}
	defer d.endEvent(more)
	handle()
}

func (d *eventGate) knowsObjects() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects > 0
}

func (d *eventGate) beginEvent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.inFlight++
	return true
}

func (d *eventGate) endEvent(more int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects += more
	if d.inFlight--; d.closed && d.inFlight == 0 {
		close(d.drained)
	}
}

func (d *eventGate) closeGate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if d.closed = true; d.inFlight == 0 {
		close(d.drained)
	}
}

func (d *eventGate) isDrained() bool { return isClosed(d.drained) }

// gatedHandler is a handler behind a gate, because client-go may still deliver an event after a handler was removed.
type gatedHandler struct {
	gate    *eventGate
	handler toolscache.ResourceEventHandler
}

func (g gatedHandler) OnAdd(obj any, initial bool) {
	g.gate.handleEvent(1, func() { g.handler.OnAdd(obj, initial) })
}

func (g gatedHandler) OnUpdate(before, now any) {
	g.gate.handleEvent(0, func() { g.handler.OnUpdate(before, now) })
}

func (g gatedHandler) OnDelete(obj any) {
	g.gate.handleEvent(-1, func() { g.handler.OnDelete(obj) })
}
