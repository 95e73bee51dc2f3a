// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/internal/reconcile/priority"
)

func TestOngoingTransitionsHavePriority(t *testing.T) {
	for name, row := range map[string]struct {
		result ctrl.Result
		err    error
		want   int
	}{
		"next pass due immediately, for example after a record was saved: urgent": {ctrl.Result{RequeueAfter: time.Millisecond}, nil, priority.Urgent},
		"settled cluster loses its priority":                                      {ctrl.Result{RequeueAfter: 10 * time.Minute, Priority: new(priority.Urgent)}, nil, priority.Usual},
		"cluster that waits for an event loses its priority":                      {ctrl.Result{}, nil, priority.Usual},
		"cluster with a failed pass loses its priority":                           {ctrl.Result{}, errors.New("no hub"), priority.Usual},
	} {
		t.Run(name, func(t *testing.T) {
			pass := begunFirst{ctrlreconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return row.result, row.err })}
			result, err := pass.Reconcile(t.Context(), ctrl.Request{})
			if !errors.Is(err, row.err) || result.Priority == nil || *result.Priority != row.want || result.RequeueAfter != row.result.RequeueAfter {
				t.Errorf("expected the priority %d and the same result, found %+v and %v", row.want, result, err)
			}
		})
	}
}

// TestAnswersOvertakeClustersThatBegin queues a hundred new clusters, and then a cluster whose poll has a result. The
// last cluster must have the first pass.
func TestAnswersOvertakeClustersThatBegin(t *testing.T) {
	queue := priorityqueue.New[ctrl.Request]("test")
	defer queue.ShutDown()
	named := func(name string) ctrl.Request {
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
	}
	for i := range 100 {
		queue.Add(named(string(rune('a' + i))))
	}
	priority.Enqueue(queue, named("just resumed"), priority.Usual)
	priority.Enqueue(queue, named("answered"), priority.Urgent)
	if first, _, _ := queue.GetWithPriority(); first.Name != "answered" {
		t.Errorf("expected the cluster that has its result, found %s", first.Name)
	}
}
