// SPDX-License-Identifier: Apache-2.0

// Package urgency orders the passes of a process: the overdue ends of stops come first, then urgent passes.
package urgency

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// The priorities of passes. Objects that are listed when a manager starts have controller-runtime's priority for
// that, which is lower than both.
const (
	UsualPriority  = 0
	UrgentPriority = 10
)

// PriorityOf returns the priority of the next pass. Without one, the next pass would have the priority of the last
// one forever.
func PriorityOf(isUrgent bool) int {
	if isUrgent {
		return UrgentPriority
	}
	return UsualPriority
}

// Enqueue runs a pass of the object at once.
func Enqueue(queue workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, priority int) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
		return
	}
	queue.Add(request)
}
