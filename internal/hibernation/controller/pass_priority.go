// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The priorities of passes. A cluster that has begun goes on before another one begins, so that its machines change while the others
// are written down; with all at one priority no machine of a fleet is ordered to change before the last cluster has begun.
const (
	usualPriority = 0
	begunPriority = 10
	// goesOnWithin is the longest interval of a pass that goes on with what the last one has written.
	goesOnWithin = time.Second
)

// begunFirst has passes that go on run before those that begin.
type begunFirst struct{ ctrlreconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (b begunFirst) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := b.Reconciler.Reconcile(ctx, req)
	// Without one, a pass has the priority of the last for ever.
	result.Priority = new(usualPriority)
	if result.RequeueAfter > 0 && result.RequeueAfter < goesOnWithin {
		result.Priority = new(begunPriority)
	}
	if err != nil {
		return result, fmt.Errorf("pass: %w", err)
	}
	return result, nil
}

// enqueue has the pass of a cluster run at once.
func enqueue(queue workqueue.TypedRateLimitingInterface[ctrl.Request], cluster types.NamespacedName, priority int) {
	request := ctrl.Request{NamespacedName: cluster}
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
		return
	}
	queue.Add(request)
}
