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

// drainInterval is how often a scope that drains looks at its queues: controller-runtime's tell nobody that they are empty.
const drainInterval = 2 * time.Millisecond

// lastEventsTimeout bounds the wait for the deletions that the API server has sent before that of their CRD. They do not come
// when the watch was cut at that moment; the scope tells its handlers then.
const lastEventsTimeout = 5 * time.Second

// trackedQueue is a controller's queue that can be emptied before its workers are asked to return.
// controller-runtime's drops what waits in it as soon as its context ends.
type trackedQueue struct {
	requestQueue
	limiter      requestLimiter // of the queue
	name         string         // of the controller
	shutDownOnce sync.Once
	adding       sync.RWMutex // held for reading while something is added

	mu       sync.Mutex
	isEnding bool // nothing is taken or added any more; adding guards it, too
	waiting  int  // workers that wait for a request
	// working are the workers that have a request: for a moment two, when one is done and another has got it again.
	working map[reconcile.Request]int
	failed  map[reconcile.Request]struct{} // requests that the limiter counts
}

// trackedPriorityQueue is one that has priorities, which is the default.
type trackedPriorityQueue struct {
	*trackedQueue
	inner priorityqueue.PriorityQueue[reconcile.Request]
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = trackedPriorityQueue{}

// trackQueue puts a trackedQueue into a controller of controller-runtime that has not been started. The field is no part of
// the interface; without it, or with requests of another type, a stop drops what is queued.
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

// ControllerQueue is the queue of a running controller, and the context that ends with it.
type ControllerQueue struct {
	Context context.Context
	Queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// takeNext returns the next request; a queue that shuts down may still hand one out, which is not to be lost.
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

// addUnlessEnding adds requests. Those that fail when it is too late for another try count as failed all the same.
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

// countedLimiter tells its queue what it counts. One that the controller's options have lives longer than the queue.
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

// ShutDown lets the workers return. The controller calls it at the end of its context, perhaps for the second time.
func (q *trackedQueue) ShutDown() { q.shutDownWithin(context.Background()) }

// shutDownWithin waits until no worker is about to get a request: controller-runtime's priority queue may hand out, and count, one
// more after its end, when the gauge of its depth is gone.
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

// countWorkers counts those that wait for a request, and those that have one.
func (q *trackedQueue) countWorkers() (waiting, working int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting, len(q.working)
}

// ShutDownWithDrain is ShutDown: controller-runtime's queue does not drain.
func (q *trackedQueue) ShutDownWithDrain() { q.ShutDown() }

// countUnfinished counts the requests that nobody has reconciled to an end.
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

// HasLostKinds reports whether a kind that the scope watches is gone, or is another one now: the requests that its last
// objects have left in the queues will not come again.
func (m *Manager) HasLostKinds() bool { return len(m.cache.lostInformers()) > 0 }

// drain lets the controllers reconcile the last deletions, and returns how many requests were left when ctx ended.
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

// endQueues forgets what the limiters have counted, and what controller-runtime shows of the queues: it counts what was dropped for ever.
func (m *Manager) endQueues() {
	for _, q := range m.trackedQueues() {
		_ = q.Len() // It waits for the queue's goroutines, which may still count.
		q.forgetFailures()
		m.registry.DeleteQueueGauges(q.name)
	}
}

// waitUntil also returns when ctx ends.
func waitUntil(ctx context.Context, holds func() bool) {
	_ = wait.PollUntilContextCancel(ctx, drainInterval, true, func(context.Context) (bool, error) { return holds(), nil })
}

// ControllerNames returns the names of the scope's controllers that have been started.
func (m *Manager) ControllerNames() (names []string) {
	for _, q := range m.trackedQueues() {
		names = append(names, q.name)
	}
	return names
}
