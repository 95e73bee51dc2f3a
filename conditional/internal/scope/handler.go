// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
)

// registration is one handler of the scope. It outlives the informers that it is connected to one after the other.
type registration struct {
	use     *use
	to      toolscache.ResourceEventHandler
	opts    toolscache.HandlerOptions
	reading bool          // it is of the client, and stays until the scope is closed
	synced  *latch        // of an optional kind
	gone    chan struct{} // closed when it is removed

	// Guarded by the view.
	inner toolscache.ResourceEventHandlerRegistration // nil while it is not connected
	door  *door                                       // of the last connection
}

// HasSynced is true when the handler has seen all that was there first.
func (r *registration) HasSynced() bool { return toolscache.IsDone(r.HasSyncedChecker()) }

// HasSyncedChecker is done when the handler has seen all that was there first, and when the kind is not there.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	r.use.view.mu.Lock()
	defer r.use.view.mu.Unlock()
	return r.checker()
}

func (r *registration) checker() toolscache.DoneChecker {
	if r.use.optional == nil && r.inner != nil {
		return r.inner.HasSyncedChecker()
	}
	return named{r.synced, "handler of " + r.use.slot.gvk.String()}
}

// connect adds the handler to the leased informer.
func (u *use) connect(r *registration) error {
	d := &door{empty: make(chan struct{})}
	if r.door != nil {
		d.before = r.door.empty
	}
	inner, err := u.lease.Informer().AddEventHandlerWithOptions(guarded{d, r.to}, r.opts)
	if err != nil {
		return err
	}
	r.inner, r.door = inner, d
	v := u.view
	v.doors = append(slices.DeleteFunc(v.doors, (*door).isEmpty), d)
	u.relay(inner.HasSyncedChecker(), r.synced)
	return nil
}

// disconnect takes the handler off: no event begins afterwards, one that is being handled goes on.
func (u *use) disconnect(r *registration) {
	if r.inner == nil {
		return
	}
	r.door.shut()
	if err := u.lease.Informer().RemoveEventHandler(r.inner); err != nil {
		u.view.fail(err)
	}
	r.inner = nil
}

// remove disconnects the handler for ever.
func (u *use) remove(r *registration) {
	u.disconnect(r)
	at := slices.Index(u.handlers, r)
	if at >= 0 {
		u.handlers = slices.Delete(u.handlers, at, at+1)
		close(r.gone)
	}
}

// door lets events through to a handler until it is shut.
type door struct {
	before <-chan struct{} // closed when the door before this one is empty: events come one after the other
	empty  chan struct{}   // closed when it is shut and no event is being handled

	mu     sync.Mutex
	inside int
	closed bool
}

func (d *door) pass(handle func()) {
	if d.before != nil {
		<-d.before
	}
	if !d.enter() {
		return
	}
	defer d.leave()
	handle()
}

func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.inside++
	return true
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside--; d.closed && d.inside == 0 {
		close(d.empty)
	}
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if d.closed = true; d.inside == 0 {
		close(d.empty)
	}
}

func (d *door) isEmpty() bool { return isClosed(d.empty) }

// guarded is a handler behind a door: client-go may still deliver an event after a handler was removed.
type guarded struct {
	door *door
	to   toolscache.ResourceEventHandler
}

// OnAdd tells of an object that is there.
func (g guarded) OnAdd(obj any, initial bool) {
	g.door.pass(func() { g.to.OnAdd(obj, initial) })
}

// OnUpdate tells of a change.
func (g guarded) OnUpdate(before, now any) {
	g.door.pass(func() { g.to.OnUpdate(before, now) })
}

// OnDelete tells that an object is gone.
func (g guarded) OnDelete(obj any) {
	g.door.pass(func() { g.to.OnDelete(obj) })
}
