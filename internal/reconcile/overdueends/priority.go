// SPDX-License-Identifier: Apache-2.0

// Package overdueends orders the passes of all controllers of a process: passes that end overdue stops run first, then
// urgent passes.
package overdueends

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// These are the priorities of passes. Objects of the initial list have handler.LowPriority of controller-runtime, which
// is lower than both.
const (
	UsualPriority  = 0
	UrgentPriority = 10
)

// PriorityOf returns the priority of the next pass. It must always be set, because otherwise every later pass would
// keep the priority of this one.
func PriorityOf(isUrgent bool) int {
	if isUrgent {
		return UrgentPriority
	}
	return UsualPriority
}

// Enqueue adds a request to the queue, with the priority if the queue supports it.
func Enqueue(queue workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, priority int) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
		return
	}
	queue.Add(request)
}
