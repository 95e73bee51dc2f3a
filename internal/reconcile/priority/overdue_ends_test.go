// SPDX-License-Identifier: Apache-2.0

package priority

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func podOf(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func nameOf(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// trackPods returns a tracker for which the named Pods are overdue, and all other Pods may yield.
func trackPods(all *OverdueEnds, controller string, overdue ...string) *EndTracker[*corev1.Pod] {
	return TrackEnds(all, controller,
		func(p *corev1.Pod) bool { return slices.Contains(overdue, p.Name) },
		func(_ context.Context, p *corev1.Pod) bool { return !slices.Contains(overdue, p.Name) })
}

func TestPassesWaitForOverdueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewOverdueEnds(clock.RealClock{})
		one, other := trackPods(all, "one", "a", "b"), trackPods(all, "other")
		waits := func() bool { return other.AwaitTurn(t.Context(), nameOf("x"), podOf("x")) > 0 }
		var told atomic.Int32 // A timer increments it, too.
		tell := func() { other.Tell(func() { told.Add(1) }) }
		expect := func(when string, isWaiting bool, isTold int32) {
			t.Helper()
			if waits() != isWaiting || told.Load() != isTold {
				t.Errorf("%s: expected others to wait: %t, and %d to be told, found %t and %d", when, isWaiting, isTold, waits(), told.Load())
			}
		}
		tell()
		expect("nothing is overdue", false, 1)
		for _, name := range []string{"a", "b"} {
			if wait := one.AwaitTurn(t.Context(), nameOf(name), podOf(name)); wait > 0 {
				t.Errorf("expected the pass of %s to run, found that it waits %s", name, wait)
			}
		}
		tell()
		expect("two stops are overdue", true, 1)
		one.Forget(nameOf("a"))
		expect("a stop has ended", true, 1)
		deleted := podOf("y")
		deleted.DeletionTimestamp = new(metav1.NewTime(all.clock.Now()))
		if wait := other.AwaitTurn(t.Context(), nameOf("y"), deleted); wait > 0 {
			t.Error("expected a deletion not to wait, found that it does")
		}
		one.Forget(nameOf("b"))
		expect("both stops have ended", false, 2)

		one.AwaitTurn(t.Context(), nameOf("a"), podOf("a"))
		tell()
		expect("a stop is overdue again", true, 2)
		<-time.After(progressLimit)
		synctest.Wait()
		expect("the stop does not end", false, 3)
		one.AwaitTurn(t.Context(), nameOf("a"), podOf("a"))
		expect("the stop still does not end", false, 3)
		for range endsLimit / time.Second {
			one.AwaitTurn(t.Context(), nameOf("b"), podOf("b"))
			one.Forget(nameOf("b"))
			<-time.After(time.Second)
		}
		expect("others come and go for long", false, 3)
		one.Forget(nameOf("a"))
		one.AwaitTurn(t.Context(), nameOf("b"), podOf("b"))
		expect("no stop was overdue for a moment", true, 3)
		tell()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := all.Start(ctx); err != nil {
			t.Error(err)
		}
		expect("the process ends", true, 4)
	})
}

func TestPassesDoNotWaitWithoutOverdueEnds(t *testing.T) {
	none := TrackEnds(nil, "none", func(*corev1.Pod) bool { return true }, func(context.Context, *corev1.Pod) bool { return true })
	told := false
	none.Tell(func() { told = true })
	none.Forget(nameOf("a"))
	if wait := none.AwaitTurn(t.Context(), nameOf("a"), podOf("a")); wait > 0 || !told {
		t.Errorf("expected nothing to wait, found %s and told %t", wait, told)
	}
}

// TestOverdueObjectsComeFirst lists objects, as at the start of a manager.
func TestOverdueObjectsComeFirst(t *testing.T) {
	queue := priorityqueue.New[ctrl.Request]("test")
	defer queue.ShutDown()
	all := NewOverdueEnds(clock.RealClock{})
	tracker := trackPods(all, "one", "overdue")
	Enqueue(queue, ctrl.Request{NamespacedName: nameOf("goes-on")}, Usual)
	for _, name := range []string{"fine", "overdue"} {
		tracker.EnqueueOverdue().Create(t.Context(), event.CreateEvent{Object: podOf(name), IsInInitialList: true}, queue)
	}
	for _, name := range []string{"fine", "overdue"} { // An update of an object that was already overdue does not enqueue it.
		tracker.EnqueueOverdue().Update(t.Context(), event.UpdateEvent{ObjectOld: podOf(name), ObjectNew: podOf(name)}, queue)
		tracker.EnqueueOverdue().Update(t.Context(), event.UpdateEvent{ObjectOld: podOf("before"), ObjectNew: podOf(name)}, queue)
	}
	for _, want := range []string{"overdue", "goes-on"} {
		if got, _, _ := queue.GetWithPriority(); got.Name != want {
			t.Errorf("expected %s, found %s", want, got.Name)
		}
	}
	if len(all.ends) != 1 || queue.Len() != 0 {
		t.Errorf("expected one overdue end and nothing else to do, found %d and %d", len(all.ends), queue.Len())
	}
}

// TestDelayedFunctionsAreCalledAlthoughMoreEndsAreOverdue has another stop become overdue shortly before the timer
// fires, and no change to the set after that.
func TestDelayedFunctionsAreCalledAlthoughMoreEndsAreOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewOverdueEnds(clock.RealClock{})
		one := trackPods(all, "one", "a", "b")
		one.AwaitTurn(t.Context(), nameOf("a"), podOf("a"))
		var told atomic.Int32
		for range 2 {
			all.delay(func() { told.Add(1) })
		}
		<-time.After(progressLimit - time.Second)
		one.AwaitTurn(t.Context(), nameOf("b"), podOf("b"))
		<-time.After(progressLimit + time.Second)
		synctest.Wait()
		if told.Load() != 2 {
			t.Errorf("expected both to be told once nothing has come to its end for %s, found %d", progressLimit, told.Load())
		}
		all.delay(func() { told.Add(1) })
		if told.Load() != 3 || len(all.delayed) > 0 {
			t.Errorf("expected a later function to be called at once, and none to be left, found %d and %d", told.Load(), len(all.delayed))
		}
	})
}
