// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queuedController has the field of controller-runtime's that opens its queue.
type queuedController struct {
	manager.Runnable
	NewQueue func(string, requestLimiter) requestQueue
}

func TestARateLimiterForgetsWithEachLife(t *testing.T) {
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
