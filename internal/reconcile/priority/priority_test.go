// SPDX-License-Identifier: Apache-2.0

package priority

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// TestUrgentObjectsComeFirst enqueues a hundred objects as at the start of a manager, one whose pass was not urgent,
// and then an urgent one.
func TestUrgentObjectsComeFirst(t *testing.T) {
	queue := priorityqueue.New[ctrl.Request]("test")
	defer queue.ShutDown()
	named := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	for i := range 100 {
		listed := &handler.EnqueueRequestForObject{}
		listed.Create(t.Context(), event.CreateEvent{Object: named(string(rune('a' + i))), IsInInitialList: true}, queue)
	}
	Enqueue(queue, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "goes-on"}}, Of(false))
	Enqueue(queue, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "hurries"}}, Of(true))
	for _, want := range []string{"hurries", "goes-on"} {
		if got, _, _ := queue.GetWithPriority(); got.Name != want {
			t.Errorf("expected %s, found %s", want, got.Name)
		}
	}
}
