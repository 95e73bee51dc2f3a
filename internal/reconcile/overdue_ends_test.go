// SPDX-License-Identifier: Apache-2.0

package reconcile

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

	"github.com/torpor-dev/torpor/internal/decision"
)

func podOf(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func nameOf(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// trackPods makes Pods of some names overdue; all others may yield.
func trackPods(all *OverdueEnds, controller string, overdue ...string) *EndTracker[*corev1.Pod] {
	return TrackEnds(all, controller,
		func(p *corev1.Pod) bool { return slices.Contains(overdue, p.Name) },
		func(_ context.Context, p *corev1.Pod) bool { return !slices.Contains(overdue, p.Name) })
}

func TestOthersWaitForOverdueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewOverdueEnds(clock.RealClock{})
		one, other := trackPods(all, "one", "a", "b"), trackPods(all, "other")
		waits := func() bool { return other.awaitTurn(t.Context(), nameOf("x"), podOf("x")) > 0 }
		var told atomic.Int32 // A timer calls it, too.
		tell := func() { other.tell(func() { told.Add(1) }) }
		expect := func(when string, isWaiting bool, isTold int32) {
			t.Helper()
			if waits() != isWaiting || told.Load() != isTold {
				t.Errorf("%s: expected others to wait: %t, and %d to be told, found %t and %d", when, isWaiting, isTold, waits(), told.Load())
			}
		}
		tell()
		expect("nothing is overdue", false, 1)
		for _, name := range []string{"a", "b"} {
			if wait := one.awaitTurn(t.Context(), nameOf(name), podOf(name)); wait > 0 {
				t.Errorf("expected the pass of %s to run, found that it waits %s", name, wait)
			}
		}
		tell()
		expect("two stops are overdue", true, 1)
		one.forget(nameOf("a"))
		expect("a stop has ended", true, 1)
		deleted := podOf("y")
		deleted.DeletionTimestamp = new(metav1.NewTime(all.clock.Now()))
		if wait := other.awaitTurn(t.Context(), nameOf("y"), deleted); wait > 0 {
			t.Error("expected a deletion not to wait, found that it does")
		}
		one.forget(nameOf("b"))
		expect("both stops have ended", false, 2)

		one.awaitTurn(t.Context(), nameOf("a"), podOf("a"))
		tell()
		expect("a stop is overdue again", true, 2)
		<-time.After(progressLimit)
		synctest.Wait()
		expect("the stop does not end", false, 3)
		one.awaitTurn(t.Context(), nameOf("a"), podOf("a"))
		expect("the stop still does not end", false, 3)
		for range endsLimit / time.Second {
			one.awaitTurn(t.Context(), nameOf("b"), podOf("b"))
			one.forget(nameOf("b"))
			<-time.After(time.Second)
		}
		expect("others come and go for long", false, 3)
		one.forget(nameOf("a"))
		one.awaitTurn(t.Context(), nameOf("b"), podOf("b"))
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

func TestWithoutOverdueEndsNothingWaits(t *testing.T) {
	none := TrackEnds(nil, "none", func(*corev1.Pod) bool { return true }, func(context.Context, *corev1.Pod) bool { return true })
	told := false
	none.tell(func() { told = true })
	none.forget(nameOf("a"))
	if wait := none.awaitTurn(t.Context(), nameOf("a"), podOf("a")); wait > 0 || !told {
		t.Errorf("expected nothing to wait, found %s and told %t", wait, told)
	}
}

// TestOverdueObjectsComeFirst lists objects as at the start of a manager.
func TestOverdueObjectsComeFirst(t *testing.T) {
	queue := priorityqueue.New[ctrl.Request]("test")
	defer queue.ShutDown()
	all := NewOverdueEnds(clock.RealClock{})
	tracker := trackPods(all, "one", "overdue")
	Enqueue(queue, ctrl.Request{NamespacedName: nameOf("goes-on")}, UsualPriority)
	for _, name := range []string{"fine", "overdue"} {
		tracker.EnqueueOverdue().Create(t.Context(), event.CreateEvent{Object: podOf(name), IsInInitialList: true}, queue)
	}
	for _, name := range []string{"fine", "overdue"} { // The change of one that was overdue before is not news.
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

// TestAPassEndsWhatIsOverdue expects an object to be removed from the overdue ends if its pass does not continue at
// once.
func TestAPassEndsWhatIsOverdue(t *testing.T) {
	for name, row := range map[string]struct {
		out     FollowUp
		looks   error
		isAhead bool
	}{
		"the pass continues at once: other passes wait":         {out: FollowUp{RequeueAfter: StaleCacheRetry}, isAhead: true},
		"the pass runs again later: other passes do not wait":   {out: FollowUp{RequeueAfter: time.Minute}},
		"the pass waits for an event: other passes do not wait": {},
		"an answer is pending: other passes do not wait":        {looks: ErrPending},
		"the cache is stale: other passes wait":                 {looks: ErrStale, isAhead: true},
	} {
		t.Run(name, func(t *testing.T) {
			all, events := NewOverdueEnds(clock.RealClock{}), eventList{}
			p := newPodPass(&fakeServer{}, &events)
			p.Ends = trackPods(all, "tester", "p")
			p.Observe = func(context.Context, *corev1.Pod) (int, error) { return 0, row.looks }
			p.Report = func(*corev1.Pod, int, int, *RefusedError) FollowUp {
				row.out.Events = []decision.Event{{Reason: "Ended"}}
				return row.out
			}
			result, err := p.Reconcile(t.Context(), podRequest)
			if err != nil {
				t.Fatal(err)
			}
			isUrgent := result.Priority == nil || *result.Priority == UrgentPriority
			if isAhead := len(all.ends) > 0; isAhead != row.isAhead || isAhead && !isUrgent || isAhead && len(events) > 0 {
				t.Errorf("expected that others wait: %t, found %t, urgent %t, and events %v", row.isAhead, isAhead, isUrgent, events)
			}
		})
	}
}

// TestWhatIsUntoldIsToldThoughMoreIsOverdue has another end become overdue shortly before the timer fires, and no
// change after that.
func TestWhatIsUntoldIsToldThoughMoreIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewOverdueEnds(clock.RealClock{})
		one := trackPods(all, "one", "a", "b")
		one.awaitTurn(t.Context(), nameOf("a"), podOf("a"))
		var told atomic.Int32
		for range 2 {
			all.tell(func() { told.Add(1) })
		}
		<-time.After(progressLimit - time.Second)
		one.awaitTurn(t.Context(), nameOf("b"), podOf("b"))
		<-time.After(progressLimit + time.Second)
		synctest.Wait()
		if told.Load() != 2 {
			t.Errorf("expected both to be told once nothing has come to its end for %s, found %d", progressLimit, told.Load())
		}
		all.tell(func() { told.Add(1) })
		if told.Load() != 3 || len(all.untold) > 0 {
			t.Errorf("expected a later function to be called at once, and none to be left, found %d and %d", told.Load(), len(all.untold))
		}
	})
}
