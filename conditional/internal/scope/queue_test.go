// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// queuedController has the field in which controller-runtime stores the function that creates the queue.
type queuedController struct {
	manager.Runnable
	NewQueue func(string, requestLimiter) requestQueue
}

// relayingQueue passes a finished request to the next worker before the first worker continues.
type relayingQueue struct {
	requestQueue

	afterDone func()
}

func (q relayingQueue) Done(r reconcile.Request) {
	q.requestQueue.Done(r)
	q.afterDone()
}

// TestDrainWaitsForARequestTakenAgain uses two workers. A drain must not end while the second worker handles the
// request
// that the first one has finished.
func TestDrainWaitsForARequestTakenAgain(t *testing.T) {
	m, c := &Manager{}, &queuedController{}
	var q requestQueue
	take := func() {
		if _, isOver := q.Get(); isOver {
			t.Fatal("expected a request, found the end of the queue")
		}
	}
	c.NewQueue = func(_ string, limiter requestLimiter) requestQueue {
		return relayingQueue{workqueue.NewTypedRateLimitingQueue(limiter), take}
	}
	m.trackQueue(c)
	q = c.NewQueue("two workers", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour))
	defer q.ShutDown()
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: "one"}}
	q.Add(one)
	take()
	q.Add(one)
	q.Done(one)
	if _, working := m.trackedQueues()[0].countWorkers(); working != 1 {
		t.Errorf("expected one worker with a request, found %d", working)
	}
}

func TestRateLimiterIsResetAtEachStart(t *testing.T) {
	given := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour)
	one := reconcile.Request{NamespacedName: client.ObjectKey{Name: "one"}}
	for life := range 3 {
		m := &Manager{}
		c := &queuedController{NewQueue: func(_ string, limiter requestLimiter) requestQueue {
			return workqueue.NewTypedRateLimitingQueue(limiter)
		}}
		m.trackQueue(c)
		q := c.NewQueue("one", given)
		if got := q.NumRequeues(one); got != 0 {
			t.Errorf("life %d begins with %d failures", life, got)
		}
		for range 12 {
			q.AddRateLimited(one)
		}
		if got := q.NumRequeues(one); got != 12 {
			t.Errorf("got %d failures, want 12", got)
		}
		for _, tracked := range m.trackedQueues() {
			if got := tracked.countUnfinished(); got != 1 {
				t.Errorf("%d requests are left, want the one that has failed", got)
			}
			tracked.forgetFailures()
		}
		q.ShutDown()
	}
}

// openTrackedQueue creates a tracked queue of controller-runtime's default type.
func openTrackedQueue(name string) requestQueue {
	c := &queuedController{NewQueue: func(name string, limiter requestLimiter) requestQueue {
		return priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
	}}
	(&Manager{}).trackQueue(c)
	return c.NewQueue(name, workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, time.Hour))
}

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}
}

// The events of the initial list have a low priority, so they do not delay later changes.
func TestAControllerKeepsItsPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ok := openTrackedQueue("").(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			t.Fatal("controller-runtime takes the queue for one without priorities")
		}
		defer q.ShutDown()
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, requestFor("listed"))
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(0)}, requestFor("changed"))
		var got []string
		for range 2 {
			r, priority, _ := q.GetWithPriority()
			got = append(got, fmt.Sprint(r.Name, " ", priority))
			q.Done(r)
		}
		if want := []string{"changed 0", "listed -100"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A request that fails while its queue shuts down is not retried, and counts as left over.
func TestFailedRequestAtShutdownIsLeftOver(t *testing.T) {
	q := openTrackedQueue("").(trackedPriorityQueue)
	q.Add(requestFor("one"))
	r, _, _ := q.GetWithPriority()
	q.ShutDown()
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, r)
	q.Done(r)
	if got := q.countUnfinished(); got != 1 {
		t.Errorf("%d requests are left, want the one that has failed", got)
	}
}

// As in a busy controller, a worker is waiting and requests are ready when the queue shuts down. A count after the
// deletion of the queue's gauge would create a new gauge, which starts at 0.
func TestAQueueThatHasEndedCountsNothing(t *testing.T) {
	const name = "ended"
	all, err := process.RegistryOf(nil)
	testenv.Must(t, err)
	for life := range 300 {
		q := openTrackedQueue(name)
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for r, isOver := q.Get(); !isOver; r, isOver = q.Get() {
					<-ctx.Done()
					q.Done(r)
				}
			})
		}
		for i := range 20 {
			q.Add(requestFor(fmt.Sprint(i)))
		}
		workers.Go(func() { <-ctx.Done(); q.ShutDown() })
		stop()
		workers.Wait()
		_ = q.Len()
		all.DeleteQueueGauges(name)
		for range 50 {
			runtime.Gosched() // The queue's own goroutines cannot be awaited.
		}
		if got := depthOf(t, name); got != 0 {
			t.Fatalf("the depth is %v after life %d, want 0 or no series", got, life)
		}
	}
}

// handingQueue contains one request, which it is about to return.
type handingQueue struct {
	requestQueue
	requests chan reconcile.Request
	hasEnded atomic.Bool
}

func (h *handingQueue) Len() int                       { return 1 }
func (h *handingQueue) Get() (reconcile.Request, bool) { return <-h.requests, false }
func (h *handingQueue) Done(reconcile.Request)         {}
func (h *handingQueue) ShutDown()                      { h.hasEnded.Store(true) }

// This test covers the case of TestAQueueThatHasEndedCountsNothing step by step.
func TestAQueueEndsAfterWhatItIsAboutToHandOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &handingQueue{requests: make(chan reconcile.Request)}
		c := &queuedController{NewQueue: func(string, requestLimiter) requestQueue { return inner }}
		(&Manager{}).trackQueue(c)
		q := c.NewQueue("", nil)
		go func() {
			r, _ := q.Get()
			q.Done(r)
		}()
		synctest.Wait()
		go q.ShutDown()
		<-time.After(time.Minute)
		if inner.hasEnded.Load() {
			t.Error("the queue was ended while a worker was about to get a request")
		}
		inner.requests <- requestFor("one")
		<-time.After(time.Second)
		if _, isOver := q.Get(); !isOver || !inner.hasEnded.Load() {
			t.Errorf("the queue has ended: %t, and says so to workers: %t", inner.hasEnded.Load(), isOver)
		}
	})
}

// depthOf returns the total depth of a controller's queue, over all priorities.
func depthOf(t *testing.T, controller string) (depth float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "workqueue_depth" && l.GetName() == "controller" && l.GetValue() == controller {
					depth += m.GetGauge().GetValue()
				}
			}
		}
	}
	return depth
}
