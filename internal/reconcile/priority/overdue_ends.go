// SPDX-License-Identifier: Apache-2.0

package priority

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

const (
	// endsLimit is the longest time for which overdue stops delay other work. progressLimit is the longest time for
	// which they do so while the set of overdue stops does not change: a stop that never ends must not delay other work
	// forever.
	endsLimit, progressLimit = 2 * time.Minute, 10 * time.Second
	// yieldInterval is how often a yielding pass checks whether it may run.
	yieldInterval = 500 * time.Millisecond
)

// OverdueEnds is the set of stops, of all controllers of a process, whose end time has passed. After an outage there
// may be a thousand such stops, and to end each of them requires writes. Follow-up passes and events wait until these
// stops have ended. The set is not persisted, and affects only the order of work. A process has one set; a nil set
// delays nothing.
type OverdueEnds struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	ends map[overdueEnd]bool
	// heldSince is the time since which the set has not been empty; zero while it is empty. progressAt is when a stop
	// was last added or removed.
	heldSince, progressAt time.Time
	// delayed are the delayed functions; isAwaited is true while a timer is set that calls them.
	delayed   []func()
	isAwaited bool
}

// overdueEnd identifies an object with an overdue stop, and the controller of this stop.
type overdueEnd struct {
	controller string
	name       types.NamespacedName
}

// NewOverdueEnds returns an empty set.
func NewOverdueEnds(now clock.PassiveClock) *OverdueEnds {
	return &OverdueEnds{clock: now, ends: map[overdueEnd]bool{}}
}

// Start implements manager.Runnable: it calls the delayed functions before the process ends.
func (o *OverdueEnds) Start(ctx context.Context) error {
	<-ctx.Done()
	o.mu.Lock()
	delayed := o.delayed
	o.delayed = nil
	o.mu.Unlock()
	callAll(delayed)
	return nil
}

// note records whether the stop of an object is overdue. If no work has to be delayed any longer, it calls the delayed
// functions.
func (o *OverdueEnds) note(end overdueEnd, isOverdue bool) {
	o.mu.Lock()
	if o.ends[end] != isOverdue {
		o.progressAt = o.clock.Now()
	}
	switch {
	case isOverdue && o.heldSince.IsZero():
		o.heldSince = o.clock.Now()
		fallthrough
	case isOverdue:
		o.ends[end] = true
	default:
		delete(o.ends, end)
	}
	delayed := o.takeDelayed()

	o.mu.Unlock()
	callAll(delayed)
}

// isHolding reports whether other work is delayed. The caller holds the lock.
func (o *OverdueEnds) isHolding() bool {
	if len(o.ends) == 0 {
		o.heldSince = time.Time{}
		return false
	}
	return o.clock.Since(o.heldSince) < endsLimit && o.clock.Since(o.progressAt) < progressLimit
}

// takeDelayed removes and returns the functions that may be called now. The caller holds the lock.
func (o *OverdueEnds) takeDelayed() (delayed []func()) {
	if !o.isHolding() {
		delayed, o.delayed = o.delayed, nil
	}
	return delayed
}

// delay calls a function once no overdue stop delays it, which may be immediately.
func (o *OverdueEnds) delay(f func()) {
	if o == nil {
		f()
		return
	}
	o.mu.Lock()
	o.delayed = append(o.delayed, f)
	delayed := o.takeDelayed()
	o.awaitRelease()
	o.mu.Unlock()
	callAll(delayed)
}

// awaitRelease sets a timer that calls the delayed functions when the delay expires, in case no change to the set does
// so earlier. If the set changes before that, the delay is extended, but not beyond endsLimit, and the timer is set
// again. The caller holds the lock.
func (o *OverdueEnds) awaitRelease() {
	if len(o.delayed) == 0 || o.isAwaited || !o.isHolding() {
		return
	}
	o.isAwaited = true
	left := min(endsLimit-o.clock.Since(o.heldSince), progressLimit-o.clock.Since(o.progressAt))
	time.AfterFunc(left, func() {
		o.mu.Lock()
		o.isAwaited = false
		delayed := o.takeDelayed()
		o.awaitRelease()
		o.mu.Unlock()
		callAll(delayed)
	})
}

func callAll(delayed []func()) {
	for _, f := range delayed {
		f()
	}
}

// EndTracker gives priority to those passes of a controller that end an overdue stop. A nil EndTracker does nothing.
type EndTracker[T client.Object] struct {
	all        *OverdueEnds
	controller string
	isOverdue  func(T) bool
	mayYield   func(context.Context, T) bool
}

// TrackEnds returns a tracker for a controller. Objects for which isOverdue returns true have an overdue stop. While
// any stop in the process is overdue, the passes of objects for which mayYield returns true wait. Either function may
// be nil.
func TrackEnds[T client.Object](all *OverdueEnds, controller string, isOverdue func(T) bool, mayYield func(context.Context, T) bool) *EndTracker[T] {
	if all == nil {
		return nil
	}
	return &EndTracker[T]{all, controller, isOverdue, mayYield}
}

// EnqueueOverdue enqueues an object with priority if its stop is overdue when the manager starts, or becomes overdue
// by an update.
func (e *EndTracker[T]) EnqueueOverdue() handler.EventHandler {
	type workQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, created event.CreateEvent, queue workQueue) {
			e.enqueueOverdue(nil, created.Object, queue)
		},
		UpdateFunc: func(_ context.Context, updated event.UpdateEvent, queue workQueue) {
			e.enqueueOverdue(updated.ObjectOld, updated.ObjectNew, queue)
		},
	}
}

func (e *EndTracker[T]) enqueueOverdue(before, after client.Object, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	obj, isOfKind := after.(T)
	if !isOfKind || !e.HasOverdue(obj) {
		return
	}
	if old, isUpdate := before.(T); isUpdate && e.HasOverdue(old) {
		return // The object was enqueued when its stop became overdue.
	}
	name := client.ObjectKeyFromObject(obj)
	e.all.note(overdueEnd{e.controller, name}, true)
	Enqueue(queue, ctrl.Request{NamespacedName: name}, Urgent)
}

// AwaitTurn records whether the stop of an object is overdue. If the pass of the object must wait for overdue stops, it
// returns the delay until the next attempt, otherwise zero.
func (e *EndTracker[T]) AwaitTurn(ctx context.Context, name types.NamespacedName, obj T) time.Duration {
	if e == nil {
		return 0
	}
	if e.HasOverdue(obj) {
		e.all.note(overdueEnd{e.controller, name}, true)
		return 0
	}
	e.Forget(name)
	if e.mayYield == nil || !obj.GetDeletionTimestamp().IsZero() {
		return 0
	}
	e.all.mu.Lock()
	isHolding := e.all.isHolding()
	e.all.mu.Unlock()
	if isHolding && e.mayYield(ctx, obj) {
		return yieldInterval
	}
	return 0
}

// HasOverdue reports whether the stop of an object should have ended.
func (e *EndTracker[T]) HasOverdue(obj T) bool {
	return e != nil && e.isOverdue != nil && obj.GetDeletionTimestamp().IsZero() && e.isOverdue(obj)
}

// Forget removes an object from the set: its stop has ended, it was deleted, or it waits for a longer operation.
func (e *EndTracker[T]) Forget(name types.NamespacedName) {
	if e != nil && e.isOverdue != nil {
		e.all.note(overdueEnd{e.controller, name}, false)
	}
}

// Tell calls a function once no overdue stop delays it.
func (e *EndTracker[T]) Tell(f func()) {
	if e == nil {
		f()
		return
	}
	e.all.delay(f)
}
