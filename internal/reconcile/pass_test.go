// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/decision"
)

// firstVersion is the resource version of the first object that is stored.
const firstVersion = 100

// fakeServer is an API server with one Pod, whose cached version may be outdated.
type fakeServer struct {
	client.Client
	stored, cached int
	gone           bool
	refuse         error
	finalizers     []string
	deleting       bool
	// patches are the writes of the status, and replaced are the writes of the object itself.
	patches, replaced []string
}

func (s *fakeServer) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if s.gone {
		return k8serrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: fmt.Sprint(firstVersion + s.cached), Finalizers: s.finalizers}}
	if s.deleting {
		pod.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
	}
	*obj.(*corev1.Pod) = pod
	return nil
}

func (s *fakeServer) Scheme() *runtime.Scheme { return scheme.Scheme }

func (s *fakeServer) Status() client.SubResourceWriter { return fakeStatusWriter{server: s} }

func (s *fakeServer) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := s.write(obj, patch)
	if err == nil {
		s.replaced, s.finalizers = append(s.replaced, data), obj.GetFinalizers()
	}
	return err
}

func (s *fakeServer) write(obj client.Object, patch client.Patch) (string, error) {
	data, err := patch.Data(obj)
	if err != nil {
		return "", err
	}
	if s.refuse != nil {
		return "", s.refuse
	}
	if !strings.Contains(string(data), fmt.Sprintf(`"resourceVersion":"%d"`, firstVersion+s.stored)) {
		return "", k8serrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("outdated"))
	}
	s.stored++
	if err := json.Unmarshal(data, obj); err != nil { // The response has the written values.
		return "", err
	}
	obj.SetResourceVersion(fmt.Sprint(firstVersion + s.stored))
	return string(data), nil
}

type fakeStatusWriter struct {
	client.SubResourceWriter
	server *fakeServer
}

// Patch implements client.SubResourceWriter.
func (w fakeStatusWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := w.server.write(obj, patch)
	if err == nil {
		w.server.patches = append(w.server.patches, data)
	}
	return err
}

// eventList holds the emitted events.
type eventList []string

func (l *eventList) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	*l = append(*l, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// newPodPass returns a pass over Pods that observes nothing and does nothing.
func newPodPass(s *fakeServer, events *eventList) *Pass[*corev1.Pod, int, int] {
	return &Pass[*corev1.Pod, int, int]{
		Hub:     Hub{Client: s, Recorder: events, Clock: clock.RealClock{}, Owner: "tester"},
		New:     func() *corev1.Pod { return &corev1.Pod{} },
		Observe: func(context.Context, *corev1.Pod) (int, error) { return 0, nil },
		Decide:  func(int) int { return 0 },
		Act:     func(context.Context, int, int) error { return nil },
		Report:  func(*corev1.Pod, int, int, *RefusedError) FollowUp { return FollowUp{} },
	}
}

// TestPassStaysSmall limits the fields of Pass. Code that only one controller needs belongs to that controller, and
// related fields belong in a struct.
func TestPassStaysSmall(t *testing.T) {
	const limit = 14
	if count := reflect.TypeFor[Pass[*corev1.Pod, int, int]]().NumField(); count > limit {
		t.Errorf("expected Pass to have at most %d fields, found %d", limit, count)
	}
}

var podRequest = ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}}

func TestPass(t *testing.T) {
	diskFull := errors.New("the disk is full")
	type result struct {
		RequeueAfter             time.Duration
		Failed                   bool
		Observed, Patches, Saves int
		Events                   []string
		Refused                  string
	}
	once := result{
		RequeueAfter: time.Minute, Observed: 1, Patches: 1, Saves: 1, Events: []string{"Warning Moved: 100% sure"},
	}
	with := func(change func(r *result)) result {
		r := once
		change(&r)
		return r
	}
	for name, row := range map[string]struct {
		server  fakeServer
		acts    error
		looks   error
		passes  int
		want    result
		catches bool // the cache has the write before the last pass
	}{
		"a pass writes the status once, and emits events after the write": {passes: 1, want: once},
		"an object that was deleted is not observed":                      {server: fakeServer{gone: true}, passes: 1, want: result{}},
		"a status write that meets a conflict emits no event": {server: fakeServer{stored: 1}, passes: 1, want: result{
			RequeueAfter: StaleCacheRetry, Observed: 1,
		}},
		"a cached version whose status write met a conflict is not observed again": {server: fakeServer{stored: 1}, passes: 9, want: result{
			RequeueAfter: StaleCacheRetry, Observed: 1,
		}},
		"a cached version from before the last status write is not observed": {passes: 9, want: with(func(r *result) { r.RequeueAfter = StaleCacheRetry })},
		"a cached version from after the last status write is observed": {passes: 2, catches: true, want: with(func(r *result) {
			r.Observed, r.Patches, r.Saves, r.Events = 2, 2, 2, append(r.Events, r.Events...)
		})},
		"a status write that fails without a conflict is tried again": {server: fakeServer{refuse: diskFull}, passes: 3, want: result{
			Observed: 3, Failed: true,
		}},
		"a status write that fails with NotFound emits no event, and is retried if the object exists": {
			server: fakeServer{refuse: k8serrors.NewNotFound(schema.GroupResource{}, "p")}, passes: 1,
			want: result{RequeueAfter: goneRetry, Observed: 1},
		},
		"an action that fails is reported, and the pass returns its error": {acts: diskFull, passes: 1, want: with(func(r *result) {
			r.RequeueAfter, r.Failed, r.Refused = 0, true, "the disk is full"
		})},
		"an action that returns a RefusedError is reported, and the pass returns no error": {acts: &RefusedError{Class: "Quota", Message: "no capacity"}, passes: 1, want: with(func(r *result) {
			r.Refused = "no capacity"
		})},
		"an action that returns ErrStale is not reported": {acts: fmt.Errorf("create: %w", ErrStale), passes: 1, want: result{
			RequeueAfter: StaleCacheRetry, Observed: 1,
		}},
		"an observation that returns ErrStale leads to no decision": {looks: ErrStale, passes: 1, want: result{RequeueAfter: StaleCacheRetry, Observed: 1}},
		"a failed observation fails the pass":                       {looks: diskFull, passes: 1, want: result{Failed: true, Observed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s, got, events := row.server, result{}, eventList(nil)
			p := newPodPass(&s, &events)
			p.Clock = clocktesting.NewFakePassiveClock(time.Unix(1, 0))
			p.Observe = func(context.Context, *corev1.Pod) (int, error) {
				got.Observed++
				return got.Observed, row.looks
			}
			p.Act = func(context.Context, int, int) error { return row.acts }
			p.Report = func(pod *corev1.Pod, seen, _ int, refused *RefusedError) FollowUp {
				pod.Status.Message = fmt.Sprint("pass ", seen)
				if refused != nil {
					got.Refused = refused.Error()
				}
				return FollowUp{
					RequeueAfter: time.Minute, Events: []decision.Event{{Warning: true, Reason: "Moved", Note: "100% sure"}}, AfterSave: func() { got.Saves++ },
				}
			}
			for pass := range row.passes {
				if row.catches && pass == row.passes-1 {
					s.cached = s.stored
				}
				result, err := p.Reconcile(t.Context(), podRequest)
				got.RequeueAfter, got.Failed = result.RequeueAfter, err != nil
			}
			got.Patches, got.Events = len(s.patches), events
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnchangedStatusIsNotWritten(t *testing.T) {
	s, saves := fakeServer{}, 0
	p := newPodPass(&s, &eventList{})
	p.Report = func(*corev1.Pod, int, int, *RefusedError) FollowUp { return FollowUp{AfterSave: func() { saves++ }} }
	for range 3 {
		if result, err := p.Reconcile(t.Context(), podRequest); err != nil || !result.IsZero() {
			t.Errorf("expected nothing, found %+v and %v", result, err)
		}
	}
	if len(s.patches) > 0 || saves != 3 {
		t.Errorf("expected no write and 3 calls of AfterSave, found %d and %d", len(s.patches), saves)
	}
}

func TestAnObjectIsForgottenWhenItIsGone(t *testing.T) {
	s, forgotten := fakeServer{gone: true}, types.NamespacedName{}
	p := newPodPass(&s, &eventList{})
	p.Forget = func(name types.NamespacedName) { forgotten = name }
	if _, err := p.Reconcile(t.Context(), podRequest); err != nil || forgotten != podRequest.NamespacedName {
		t.Errorf("expected %v to be forgotten, found %v and the error %v", podRequest, forgotten, err)
	}
}

func TestInterruptedPassReportsNothing(t *testing.T) {
	s := fakeServer{}
	p := newPodPass(&s, &eventList{})
	ctx, cancel := context.WithCancel(t.Context())
	p.Act = func(context.Context, int, int) error {
		cancel()
		return errors.New("interrupted")
	}
	p.Report = func(*corev1.Pod, int, int, *RefusedError) FollowUp {
		t.Error("expected no report of an action that was interrupted")
		return FollowUp{}
	}
	if _, err := p.Reconcile(ctx, podRequest); !errors.Is(err, context.Canceled) {
		t.Errorf("expected the end of the context, found %v", err)
	}
}

func TestFinalizerStaysUntilFinalizeHasEnded(t *testing.T) {
	s := fakeServer{}
	p := newPodPass(&s, &eventList{})
	left := 1
	p.Finalizer = &Finalizer[*corev1.Pod]{Name: "torpor.dev/test", Finalize: func(context.Context, *corev1.Pod) (time.Duration, error) {
		return time.Duration(left) * time.Second, nil
	}}
	reconcileOnce := func() ctrl.Result {
		t.Helper()
		s.cached = s.stored
		result, err := p.Reconcile(t.Context(), podRequest)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if result := reconcileOnce(); result.RequeueAfter != StaleCacheRetry || len(s.finalizers) != 1 {
		t.Errorf("expected a finalizer before the first observation, found %v and %v", s.finalizers, result)
	}
	s.deleting = true
	if result := reconcileOnce(); result.RequeueAfter != time.Second || len(s.finalizers) != 1 {
		t.Errorf("expected the finalizer to stay while something is left, found %v and %v", s.finalizers, result)
	}
	left = 0
	reconcileOnce()
	if len(s.finalizers) != 0 || len(s.replaced) != 2 || len(s.patches) != 0 {
		t.Errorf("expected no finalizer after 2 writes of the object and none of the status, found %v, %v and %v", s.finalizers, s.replaced, s.patches)
	}
	reconcileOnce()
	if len(s.replaced) != 2 {
		t.Errorf("expected no writes to a released object, found %v", s.replaced)
	}
}

func TestDefaultsAreSavedBeforeObserve(t *testing.T) {
	s := fakeServer{}
	p := newPodPass(&s, &eventList{})
	p.Finalizer = &Finalizer[*corev1.Pod]{Name: "torpor/test", Prepare: func(pod *corev1.Pod) bool {
		pod.Spec.NodeName = "n"
		return len(s.replaced) == 0
	}}
	p.Observe = func(_ context.Context, pod *corev1.Pod) (int, error) {
		if pod.Spec.NodeName != "" || len(s.replaced) != 1 {
			t.Errorf("expected the object as it is stored, after one write, found node %q after %d", pod.Spec.NodeName, len(s.replaced))
		}
		return 0, nil
	}
	for range 2 {
		s.cached = s.stored
		if _, err := p.Reconcile(t.Context(), podRequest); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.replaced) != 1 || !strings.Contains(s.replaced[0], `"nodeName":"n"`) {
		t.Errorf("expected one write of the defaults, found %v", s.replaced)
	}
}

func TestOutdatedVersions(t *testing.T) {
	start := time.Unix(0, 0)
	for name, row := range map[string]struct {
		version string
		after   time.Duration
		want    bool
	}{
		"version that a write replaced: outdated":                                               {"100", 0, true},
		"another writer's version between the replaced and the written one: outdated":           {"104", 0, true},
		"written version: not outdated":                                                         {"105", 0, false},
		"version after the written one: not outdated":                                           {"1000", 0, false},
		"version that cannot be compared: not outdated":                                         {"x", 0, false},
		"lower version long after the write, for example after a restore of etcd: not outdated": {"104", staleCacheLimit, false},
		"version that a write replaced, long after the write: not outdated":                     {"100", staleCacheLimit, false},
	} {
		t.Run(name, func(t *testing.T) {
			var versions versionTracker
			versions.noteWritten(podRequest, "100", "105", start)
			if wait := versions.awaitNewer(podRequest, row.version, start.Add(row.after)); wait > 0 != row.want {
				t.Errorf("expected to wait: %t, found %s", row.want, wait)
			}
		})
	}
}

func TestTransientReportsAreDebounced(t *testing.T) {
	const short = 10 * time.Millisecond
	type pass struct {
		after        time.Duration // since the previous pass
		transient    bool
		hasEvent     bool
		recurs       bool
		requeueAfter time.Duration
	}
	type writes struct{ Patches, Events, Saves int }
	for name, row := range map[string]struct {
		passes []pass
		want   writes
	}{
		"a report that is not transient is written immediately": {[]pass{{}}, writes{Patches: 1, Saves: 1}},
		"an operation shorter than statusDebounce is reported when it ends": {
			[]pass{{transient: true}, {after: short, transient: true}, {after: short}}, writes{Patches: 1, Saves: 1},
		},
		"an operation in progress is reported after statusDebounce": {[]pass{{transient: true}, {after: statusDebounce, transient: true}}, writes{Patches: 1, Saves: 1}},
		"the progress of a long operation is reported once per statusDebounce": {[]pass{
			{transient: true}, {after: statusDebounce, transient: true}, {after: short, transient: true}, {after: short, transient: true}, {after: statusDebounce, transient: true},
		}, writes{Patches: 2, Saves: 2}},
		"a transient report with an event is written immediately": {[]pass{{transient: true, hasEvent: true}}, writes{Patches: 1, Events: 1, Saves: 1}},
		"an event that recurs in each pass is emitted once, at the end of a short operation": {
			[]pass{{transient: true, hasEvent: true, recurs: true}, {after: short, transient: true, hasEvent: true, recurs: true}, {after: short, hasEvent: true, recurs: true}},
			writes{Patches: 1, Events: 1, Saves: 1},
		},
		"an event that recurs in each pass is emitted after statusDebounce if the operation continues": {
			[]pass{{transient: true, hasEvent: true, recurs: true}, {after: statusDebounce, transient: true, hasEvent: true, recurs: true}},
			writes{Patches: 1, Events: 1, Saves: 1},
		},
		"a transient report with a requeue interval below statusDebounce is requeued after that interval": {[]pass{{transient: true, requeueAfter: short}}, writes{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, events, saves, now := fakeServer{}, eventList(nil), 0, pass{}
				p := newPodPass(&s, &events)
				p.Report = func(pod *corev1.Pod, _, _ int, _ *RefusedError) FollowUp {
					pod.Status.Message = fmt.Sprint("at ", time.Now())
					out := FollowUp{RequeueAfter: now.requeueAfter, IsTransient: now.transient, EventsRecur: now.recurs, AfterSave: func() { saves++ }}
					if now.hasEvent {
						out.Events = []decision.Event{{Reason: "Moved"}}
					}
					return out
				}
				for _, now = range row.passes {
					<-time.After(now.after)
					s.cached = s.stored
					patches := len(s.patches)
					result, err := p.Reconcile(t.Context(), podRequest)
					if err != nil {
						t.Fatal(err)
					}
					limit := minNonZero(statusDebounce, now.requeueAfter)
					if held := len(s.patches) == patches; held && (result.RequeueAfter == 0 || result.RequeueAfter > limit) {
						t.Errorf("expected the next pass of a delayed report within %s, found %s", limit, result.RequeueAfter)
					}
				}
				if diff := cmp.Diff(row.want, writes{Patches: len(s.patches), Events: len(events), Saves: saves}); diff != "" {
					t.Errorf("writes (-want +got):\n%s", diff)
				}
			})
		})
	}
}
