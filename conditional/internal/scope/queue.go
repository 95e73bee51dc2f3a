// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type (
	requestQueue   = workqueue.TypedRateLimitingInterface[reconcile.Request]
	requestLimiter = workqueue.TypedRateLimiter[reconcile.Request]
)

// drainInterval is how often a draining scope checks its queues, because controller-runtime's queues do not report when
// they are empty.
const drainInterval = 2 * time.Millisecond

// lastEventsTimeout limits the wait for the events about objects that were deleted with their CRD. If the watch broke
// at that moment, these events never arrive, and the scope itself notifies its handlers.
const lastEventsTimeout = 5 * time.Second

// trackedQueue is a controller's queue that can be drained before its workers are stopped. controller-runtime's queue
// drops waiting requests as soon as its context is cancelled.
type trackedQueue struct {
	requestQueue
	limiter      requestLimiter // limiter is the limiter of the queue
	name         string         // name is the name of the controller
	shutDownOnce sync.Once
	adding       sync.RWMutex // adding is held for reading while a request is added

	mu       sync.Mutex
	isEnding bool // isEnding is true if requests are no longer taken or added; guarded by both mu and adding
	waiting  int  // waiting counts the workers that wait for a request
	// working counts the workers for each request. The count is briefly 2 if another worker takes a request before Done
	// has subtracted the first worker.
	working map[reconcile.Request]int
	failed  map[reconcile.Request]struct{} // failed holds the requests that the limiter counts
}

// trackedPriorityQueue is a trackedQueue with priorities, which is the default.
type trackedPriorityQueue struct {
	*trackedQueue
	inner priorityqueue.PriorityQueue[reconcile.Request]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = trackedPriorityQueue{}

// trackQueue replaces the queue of a controller-runtime controller with a trackedQueue before the start. The field
// NewQueue is not part of the controller's interface. If it is missing, or if the requests have another type, a stop
// drops queued requests.
func (m *Manager) trackQueue(r manager.Runnable) {
	controller := reflect.Indirect(reflect.ValueOf(r))
	if controller.Kind() != reflect.Struct {
		return
	}
	field := controller.FieldByName("NewQueue")
	if !field.IsValid() || !field.CanSet() {
		return
	}
	open, ok := reflect.TypeAssert[func(string, requestLimiter) requestQueue](field)
	if !ok || open == nil {
		return
	}
	field.Set(reflect.ValueOf(func(name string, limiter requestLimiter) requestQueue {
		q := &trackedQueue{name: name, limiter: limiter, working: map[reconcile.Request]int{}, failed: map[reconcile.Request]struct{}{}}
		q.requestQueue = open(name, countedLimiter{limiter, q})
		var tracked requestQueue = q
		if inner, ok := q.requestQueue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
			tracked = trackedPriorityQueue{q, inner}
		}
		m.mu.Lock()
		m.queues = append(m.queues, q)
		ctx := m.runContext
		m.mu.Unlock()
		if m.useQueue != nil && ctx != nil {
			m.reportFailure(m.useQueue(ControllerQueue{ctx, tracked}))
		}
		return tracked
	}))
}

// ControllerQueue is the queue of a running controller. Context is cancelled when the controller stops.
type ControllerQueue struct {
	Context context.Context
	Queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// takeNext returns the next request. When a queue reports its shutdown, it may also return a last request, which must
// not be lost.
func (q *trackedQueue) takeNext(get func() (reconcile.Request, int, bool)) (reconcile.Request, int, bool) {
	q.mu.Lock()
	if q.isEnding {
		q.mu.Unlock()
		return reconcile.Request{}, 0, true
	}
	q.waiting++
	q.mu.Unlock()
	r, priority, isOver := get()
	isOver = isOver && r == reconcile.Request{}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if !isOver {
		q.working[r]++
	}
	return r, priority, isOver
}

func (q *trackedQueue) Get() (reconcile.Request, bool) {
	r, _, isOver := q.takeNext(func() (reconcile.Request, int, bool) { r, isOver := q.requestQueue.Get(); return r, 0, isOver })
	return r, isOver
}

func (q trackedPriorityQueue) GetWithPriority() (reconcile.Request, int, bool) {
	return q.takeNext(q.inner.GetWithPriority)
}

// addUnlessEnding adds requests unless the queue is ending. A queue that is ending only records the failures of failed
// requests.
func (q *trackedQueue) addUnlessEnding(add func(), failed ...reconcile.Request) {
	q.adding.RLock()
	defer q.adding.RUnlock()
	if !q.isEnding {
		add()
		return
	}
	for _, r := range failed {
		q.noteFailure(r)
	}
}

func (q *trackedQueue) Add(r reconcile.Request) {
	q.addUnlessEnding(func() { q.requestQueue.Add(r) })
}

func (q *trackedQueue) AddAfter(r reconcile.Request, after time.Duration) {
	q.addUnlessEnding(func() { q.requestQueue.AddAfter(r, after) })
}

func (q *trackedQueue) AddRateLimited(r reconcile.Request) {
	q.addUnlessEnding(func() { q.requestQueue.AddRateLimited(r) }, r)
}

func (q trackedPriorityQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	var failed []reconcile.Request
	if o.RateLimited {
		failed = requests
	}
	q.addUnlessEnding(func() { q.inner.AddWithOpts(o, requests...) }, failed...)
}

func (q *trackedQueue) Done(r reconcile.Request) {
	q.requestQueue.Done(r)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.working[r]--; q.working[r] <= 0 {
		delete(q.working, r)
	}
}

// countedLimiter records in its queue for which requests it counts failures. A limiter from the controller's options
// outlives the queue, which must clear these counts.
type countedLimiter struct {
	requestLimiter
	queue *trackedQueue
}

func (l countedLimiter) When(r reconcile.Request) time.Duration {
	l.queue.noteFailure(r)
	return l.requestLimiter.When(r)
}

func (q *trackedQueue) noteFailure(r reconcile.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failed[r] = struct{}{}
}

func (l countedLimiter) Forget(r reconcile.Request) {
	l.queue.mu.Lock()
	delete(l.queue.failed, r)
	l.queue.mu.Unlock()
	l.requestLimiter.Forget(r)
}

func (q *trackedQueue) forgetFailures() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for r := range q.failed {
		q.limiter.Forget(r)
	}
}

// ShutDown makes the workers return. The controller calls it when its context is cancelled, even if a drain has already
// shut the queue down.
func (q *trackedQueue) ShutDown() { q.shutDownWithin(context.Background()) }

// shutDownWithin shuts the queue down as soon as no worker is about to get a request, or ctx is cancelled.
// controller-runtime's priority queue may return and count one more request after its shutdown, when the gauge of its
// depth is already deleted.
func (q *trackedQueue) shutDownWithin(ctx context.Context) {
	q.adding.Lock()
	q.mu.Lock()
	q.isEnding = true
	q.mu.Unlock()
	q.adding.Unlock()
	waitUntil(ctx, func() bool {
		waiting, _ := q.countWorkers()
		return waiting == 0 || q.Len() == 0
	})
	q.shutDownOnce.Do(q.requestQueue.ShutDown)
}

// countWorkers returns the number of workers that wait for a request, and the number of requests in progress.
func (q *trackedQueue) countWorkers() (waiting, working int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, len(q.working)
}

// ShutDownWithDrain calls ShutDown, because controller-runtime's queue does not drain.
func (q *trackedQueue) ShutDownWithDrain() { q.ShutDown() }

// countUnfinished returns the number of requests that were not reconciled successfully.
func (q *trackedQueue) countUnfinished() int {
	n := q.Len()
	q.mu.Lock()
	defer q.mu.Unlock()
	begun := maps.Clone(q.failed)
	for r := range q.working {
		begun[r] = struct{}{}
	}
	return n + len(begun)
}

func (m *Manager) trackedQueues() []*trackedQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.queues)
}

// HasLostKinds reports whether a kind that the scope watches, other than an optional one, was deleted or replaced. In
// that case, requests for its last objects will not be queued again.
func (m *Manager) HasLostKinds() bool { return len(m.cache.lostInformers()) > 0 }

// drain lets the controllers reconcile the last deletions. It returns the number of requests that were left when ctx
// was cancelled.
func (m *Manager) drain(ctx context.Context) (dropped int) {
	late, cancel := context.WithTimeout(ctx, lastEventsTimeout)
	defer cancel()
	waitUntil(late, m.cache.hasDeliveredDeletions)
	missed := m.cache.dropDeletedObjects()
	m.cache.removeHandlers()
	for _, d := range missed {
		d.deliver(ctx)
	}
	queues := m.trackedQueues()
	for _, q := range queues {
		waitUntil(ctx, func() bool { return q.Len() == 0 })
	}
	for _, q := range queues {
		q.shutDownWithin(ctx)
	}
	for _, q := range queues {
		waitUntil(ctx, func() bool {
			waiting, working := q.countWorkers()
			return waiting+working == 0
		})
	}
	for _, q := range queues {
		dropped += q.countUnfinished()
	}
	return dropped
}

// endQueues clears the counts of the limiters, and deletes controller-runtime's gauges of the queues, which would keep
// counting dropped requests.
func (m *Manager) endQueues() {
	for _, q := range m.trackedQueues() {
		_ = q.Len() // Len waits for the queue's goroutines, which may still be counting.
		q.forgetFailures()
		m.registry.DeleteQueueGauges(q.name)
	}
}

// waitUntil waits until holds returns true or ctx is cancelled.
func waitUntil(ctx context.Context, holds func() bool) {
	_ = wait.PollUntilContextCancel(ctx, drainInterval, true, func(context.Context) (bool, error) { return holds(), nil })
}

// ControllerNames returns the names of the scope's controllers that were started.
func (m *Manager) ControllerNames() (names []string) {
	for _, q := range m.trackedQueues() {
		names = append(names, q.name)
	}
	return names
}
