// SPDX-License-Identifier: Apache-2.0

package reconcile

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
	// endsLimit is for how long overdue ends hold other work back, and progressLimit for how long they do while none of them comes to its end:
	// one that is refused must not for ever.
	endsLimit, progressLimit = 2 * time.Minute, 10 * time.Second
	// yieldInterval is how often a pass that yields looks whether it is its turn.
	yieldInterval = 500 * time.Millisecond
)

// OverdueEnds are the stops of all controllers of a process that should have ended by now. An outage may have outlasted a thousand, and what
// they wait for are writes: passes that only follow up on something, and events, come after them. Nothing of that is stored, and nothing but
// the order depends on it. One lives as long as the process; nil holds nothing back.
type OverdueEnds struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	ends map[overdueEnd]bool
	// heldSince is since when there have been some, and progressAt when the last of them came or went; zero while there are none.
	heldSince, progressAt time.Time
	// untold are what is done once nothing is held back, and isAwaited is whether a timer looks after them.
	untold    []func()
	isAwaited bool
}

// overdueEnd is an object of a controller.
type overdueEnd struct {
	controller string
	name       types.NamespacedName
}

// NewOverdueEnds makes an empty one.
func NewOverdueEnds(now clock.PassiveClock) *OverdueEnds {
	return &OverdueEnds{clock: now, ends: map[overdueEnd]bool{}}
}

// Start implements manager.Runnable: what is untold is told before the process ends.
func (o *OverdueEnds) Start(ctx context.Context) error {
	<-ctx.Done()
	o.mu.Lock()
	untold := o.untold
	o.untold = nil
	o.mu.Unlock()
	tellAll(untold)
	return nil
}

// note says whether a stop of an object is overdue.
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
	untold := o.takeUntold()

	o.mu.Unlock()
	tellAll(untold)
}

// isHolding reports whether others wait. It is called with the lock held.
func (o *OverdueEnds) isHolding() bool {
	if len(o.ends) == 0 {
		o.heldSince = time.Time{}
		return false
	}
	return o.clock.Since(o.heldSince) < endsLimit && o.clock.Since(o.progressAt) < progressLimit
}

// takeUntold returns what may be told now. It is called with the lock held.
func (o *OverdueEnds) takeUntold() (untold []func()) {
	if !o.isHolding() {
		untold, o.untold = o.untold, nil
	}
	return untold
}

// tell calls a function once nothing is held back, which may be at once.
func (o *OverdueEnds) tell(f func()) {
	if o == nil {
		f()
		return
	}
	o.mu.Lock()
	o.untold = append(o.untold, f)
	untold := o.takeUntold()
	o.awaitRelease()
	o.mu.Unlock()
	tellAll(untold)
}

// awaitRelease has what is untold be told once it is held back no more, for perhaps nobody notes anything by then. What becomes overdue meanwhile holds
// it back for longer, so that the timer looks again. It is called with the lock held.
func (o *OverdueEnds) awaitRelease() {
	if len(o.untold) == 0 || o.isAwaited || !o.isHolding() {
		return
	}
	o.isAwaited = true
	left := min(endsLimit-o.clock.Since(o.heldSince), progressLimit-o.clock.Since(o.progressAt))
	time.AfterFunc(left, func() {
		o.mu.Lock()
		o.isAwaited = false
		untold := o.takeUntold()
		o.awaitRelease()
		o.mu.Unlock()
		tellAll(untold)
	})
}

func tellAll(untold []func()) {
	for _, f := range untold {
		f()
	}
}

// EndTracker has the ends of one controller come first; nil does nothing.
type EndTracker[T client.Object] struct {
	all        *OverdueEnds
	controller string
	isOverdue  func(T) bool
	mayYield   func(context.Context, T) bool
}

// TrackEnds makes one, for a controller of whose objects some have a stop that is overdue. While there are any in the process, passes of those
// objects wait that may yield; nil of either is none.
func TrackEnds[T client.Object](all *OverdueEnds, controller string, isOverdue func(T) bool, mayYield func(context.Context, T) bool) *EndTracker[T] {
	if all == nil {
		return nil
	}
	return &EndTracker[T]{all, controller, isOverdue, mayYield}
}

// EnqueueOverdue has the passes of objects run first of which a stop is overdue as a manager starts, or has become so by a change.
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
	if !isOfKind || !e.hasOverdue(obj) {
		return
	}
	if old, isUpdate := before.(T); isUpdate && e.hasOverdue(old) {
		return // Its pass is known to be due.
	}
	name := client.ObjectKeyFromObject(obj)
	e.all.note(overdueEnd{e.controller, name}, true)
	Enqueue(queue, ctrl.Request{NamespacedName: name}, UrgentPriority)
}

// awaitTurn notes whether a stop of an object is overdue, and returns when to look again if its pass has to wait for others; zero otherwise.
func (e *EndTracker[T]) awaitTurn(ctx context.Context, name types.NamespacedName, obj T) time.Duration {
	if e == nil {
		return 0
	}
	if e.hasOverdue(obj) {
		e.all.note(overdueEnd{e.controller, name}, true)
		return 0
	}
	e.forget(name)
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

// hasOverdue reports whether a stop of an object should have ended.
func (e *EndTracker[T]) hasOverdue(obj T) bool {
	return e != nil && e.isOverdue != nil && obj.GetDeletionTimestamp().IsZero() && e.isOverdue(obj)
}

// forget says that an object is none of them any more: its stop has ended, it is gone, or something keeps it that takes longer.
func (e *EndTracker[T]) forget(name types.NamespacedName) {
	if e != nil && e.isOverdue != nil {
		e.all.note(overdueEnd{e.controller, name}, false)
	}
}

// tell calls a function once no overdue end is waited for.
func (e *EndTracker[T]) tell(f func()) {
	if e == nil {
		f()
		return
	}
	e.all.tell(f)
}
