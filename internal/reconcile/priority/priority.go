// SPDX-License-Identifier: Apache-2.0

// Package priority orders the passes of all controllers of a process: passes that end overdue stops run first, then
// urgent passes.
package priority

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// These are the priorities of passes. Objects of the initial list have handler.LowPriority of controller-runtime, which
// is lower than both.
const (
	Usual  = 0
	Urgent = 10
)

// Of returns the priority of the next pass. Without a priority in its result, a pass gives its own priority to the next
// pass.
func Of(isUrgent bool) int {
	if isUrgent {
		return Urgent
	}
	return Usual
}

// Enqueue adds a request to the queue, with the priority if the queue supports it.
func Enqueue(queue workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, priority int) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
		return
	}
	queue.Add(request)
}
