// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// The priorities of passes. Objects that are listed as a manager starts have a lower one than either, which is controller-runtime's own.
const (
	UsualPriority  = 0
	UrgentPriority = 10
)

// priorityOf is that of the next pass. Without one, it would have that of the last for ever.
func priorityOf(out FollowUp) int {
	if out.IsUrgent {
		return UrgentPriority
	}
	return UsualPriority
}

// Enqueue has the pass of an object run at once.
func Enqueue(queue workqueue.TypedRateLimitingInterface[ctrl.Request], request ctrl.Request, priority int) {
	if prioritized, ok := queue.(priorityqueue.PriorityQueue[ctrl.Request]); ok {
		prioritized.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
		return
	}
	queue.Add(request)
}
