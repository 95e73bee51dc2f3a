// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
)

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
	closed   bool
}

func (d *eventGate) handleEvent(handle func()) {
	if d.previous != nil {
		<-d.previous
	}
	if !d.beginEvent() {
		return
	}
	defer d.endEvent()
	handle()
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

func (d *eventGate) endEvent() {
	d.mu.Lock()
	defer d.mu.Unlock()
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

// OnAdd passes an object on that is there.
func (g gatedHandler) OnAdd(obj any, initial bool) {
	g.gate.handleEvent(func() { g.handler.OnAdd(obj, initial) })
}

// OnUpdate passes a change on.
func (g gatedHandler) OnUpdate(before, now any) {
	g.gate.handleEvent(func() { g.handler.OnUpdate(before, now) })
}

// OnDelete passes a deletion on.
func (g gatedHandler) OnDelete(obj any) {
	g.gate.handleEvent(func() { g.handler.OnDelete(obj) })
}
