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
	"github.com/torpor-dev/torpor/conditional/internal/managercache"
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
	indexes    []informers.FieldIndex
	inherited  bool // indexes has those of the outer cache, too
	handlers   []*handlerRegistration
	synced     *closedOnceLatch // of an optional kind
	removed    chan struct{}    // closed when the scope removes it
}

// useInformer returns the scope's informer, a new one if there is none. It has the indexes that were asked for outside of
// groups, but for those that the scope has made itself before.
func (v *scopedCache) useInformer(ctx context.Context, s informerKey) (*scopedInformer, error) {
	u, err := v.existingInformer(s)
	if err != nil || u != nil && u.hasInherited() {
		return u, err
	}
	indexes := managercache.IndexesOf(v.outer, informers.InformerKind{GVK: s.gvk, Form: s.form}, v.scheme)
	if u == nil {
		if u, err = v.addInformer(ctx, s, len(indexes) > 0); err != nil {
			return nil, err
		}
	}
	return u, u.inheritIndexes(indexes)
}

func (u *scopedInformer) hasInherited() bool {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.inherited
}

func (u *scopedInformer) inheritIndexes(indexes []informers.FieldIndex) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	if u.inherited || !u.isPrivate {
		u.inherited = true
		return nil
	}
	for _, i := range indexes {
		if slices.ContainsFunc(u.indexes, func(own informers.FieldIndex) bool { return own.Field == i.Field }) {
			continue
		}
		if err := u.addIndexLocked(i); err != nil {
			return err
		}
	}
	u.inherited = true
	return nil
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
	lease, err := u.cache.pool.Lease(u.cache.lifetime, kind, u.isPrivate)
	if err != nil {
		return err
	}
	u.lease, u.leaseEnded = lease, make(chan struct{})
	for _, i := range u.indexes {
		if err := lease.AddIndex(u.cache.lifetime, i); err != nil {
			u.detachLease()
			return fmt.Errorf("index field %s of %s: %w", i.Field, kind.GVK, err)
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

// GetInformer returns the scope's informer of obj. As in any cache it waits for the sync once the scope runs, unless an option
// says otherwise.
func (v *scopedCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return nil, err
	}
	u, err := v.informerOf(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	return u.asIndexed(), nil
}

func (v *scopedCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := v.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	u, err := v.informerOf(ctx, informerKey{gvk, informers.FormOf(obj)}, opts)
	if err != nil {
		return nil, err
	}
	return u.asIndexed(), nil
}

func (v *scopedCache) informerOf(ctx context.Context, s informerKey, opts []cache.InformerGetOption) (*scopedInformer, error) {
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
		if err := v.waitDone(ctx, u.HasSyncedChecker().Done(), u.removed); err != nil {
			return nil, newUnsyncedError(s, err)
		}
	}
	return u, nil
}

// indexedInformer is a SharedIndexInformer, as callers of controller-runtime's caches expect. What the scope does not guard, its
// store for example, is that of the leased informer.
type indexedInformer struct {
	*scopedInformer
	unguarded
}

// unguarded is one level deeper than the methods of the scope's informer, which so have precedence.
type unguarded struct{ toolscache.SharedIndexInformer }

// asIndexed returns the informer itself when there is none that it leases all the time.
func (u *scopedInformer) asIndexed() cache.Informer {
	lease, _ := u.currentLease()
	if lease == nil || u.optional != nil {
		return u
	}
	if inner, ok := lease.Informer().(toolscache.SharedIndexInformer); ok {
		return indexedInformer{u, unguarded{inner}}
	}
	return u
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

func (u *scopedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

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
	s, err := r.informerKeyOf(obj)
	if err != nil {
		return nil, err
	}
	u, err := r.informerOf(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	return clientInformer{u}, nil
}

type clientInformer struct{ *scopedInformer }

// AddEventHandler adds a handler that is removed when the scope is closed.
func (u clientInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	r := &handlerRegistration{informer: u.scopedInformer, handler: h, ofClient: true, synced: newLatch(), removed: make(chan struct{})}
	return r, u.addRegistration(r)
}

// IndexField adds an index to the scope's informer of obj, which is not shared then: an index cannot be taken out of
// an informer, and no two may have the same name. For an optional kind it is added whenever the kind comes.
func (v *scopedCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if v.lifetime.Err() != nil {
		return ErrClosed
	}
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return err
	}
	u, err := v.existingInformer(s)
	if err != nil {
		return err
	}
	// An informer that is not in use yet can be a private one, which takes indexes.
	if u == nil {
		if u, err = v.addInformer(ctx, s, true); err != nil {
			return err
		}
	}
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.addIndexLocked(informers.FieldIndex{Object: obj, Field: field, Extract: extract})
}

func (u *scopedInformer) addIndexLocked(i informers.FieldIndex) error {
	switch {
	case u.cache.isClosed:
		return ErrClosed
	case !u.isPrivate:
		return newLateIndexError(u.key, "IndexField")
	}
	if u.lease != nil {
		if err := u.lease.AddIndex(u.cache.lifetime, i); err != nil {
			return err
		}
	}
	u.indexes = append(u.indexes, i)
	return nil
}

func newLateIndexError(s informerKey, call string) error {
	return fmt.Errorf("expected %s before the first use of %s in this setup, found its informer in use, which other controllers share: "+
		"call mgr.GetFieldIndexer().IndexField first, before controllers are built and objects read", call, s.gvk)
}

// handlerRegistration is one handler of the scope. It outlives the informers that it is connected to one after the other.
type handlerRegistration struct {
	informer *scopedInformer
	handler  toolscache.ResourceEventHandler
	opts     toolscache.HandlerOptions
	ofClient bool             // the client added it, so it stays until the scope is closed
	synced   *closedOnceLatch // of an optional kind
	removed  chan struct{}    // closed when it is removed

	// Guarded by the cache's lock.
	inner toolscache.ResourceEventHandlerRegistration // nil while it is not connected
	gate  *eventGate                                  // of the last connection
}

// HasSynced is true when the handler has seen all that was there first.
func (r *handlerRegistration) HasSynced() bool { return toolscache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker is done when the handler has seen all that was there first, and when the kind is not there.
func (r *handlerRegistration) HasSyncedChecker() toolscache.DoneChecker {
	r.informer.cache.mu.Lock()
	defer r.informer.cache.mu.Unlock()
	return r.syncChecker()
}

func (r *handlerRegistration) syncChecker() toolscache.DoneChecker {
	if r.informer.optional == nil && r.inner != nil {
		return r.inner.HasSyncedChecker()
	}
	return namedLatch{r.synced, "handler of " + r.informer.key.gvk.String()}
}

// connectHandler adds the handler to the leased informer.
func (u *scopedInformer) connectHandler(r *handlerRegistration) error {
	d := &eventGate{drained: make(chan struct{})}
	// The handler may still be busy with an event of the last connection, and must not see two at once.
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

// disconnectHandler takes the handler off: no event begins afterwards, one that is being handled goes on.
func (u *scopedInformer) disconnectHandler(r *handlerRegistration) {
	if r.inner == nil {
		return
	}
	// RemoveEventHandler does not wait, and client-go still delivers the events that it has queued.
	r.gate.closeGate()
	if err := u.lease.Informer().RemoveEventHandler(r.inner); err != nil {
		u.cache.reportError(err)
	}
	r.inner = nil
}

// removeHandler disconnects the handler for ever.
func (u *scopedInformer) removeHandler(r *handlerRegistration) {
	u.disconnectHandler(r)
	at := slices.Index(u.handlers, r)
	if at >= 0 {
		u.handlers = slices.Delete(u.handlers, at, at+1)
		close(r.removed)
	}
}

// eventGate lets events through to a handler until it is closed.
type eventGate struct {
	previous <-chan struct{} // closed when the gate of the connection before is drained: events come one after the other
	drained  chan struct{}   // closed when the gate is closed and no event is being handled

	mu       sync.Mutex
	inFlight int
	objects  int // that the handler knows: those added less those deleted
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

// gatedHandler is a handler behind a gate: client-go may still deliver an event after a handler was removed.
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
