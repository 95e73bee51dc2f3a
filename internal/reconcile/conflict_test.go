// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// conflictingWrites answers every write to some paths with the conflict of an admission webhook.
type conflictingWrites struct {
	http.RoundTripper
	path    string
	isOn    *atomic.Bool
	refused *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c conflictingWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, c.path) || !c.isOn.Load() {
		return c.RoundTripper.RoundTrip(r)
	}
	c.refused.Add(1)
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"denied by the webhook"}`
	return &http.Response{
		StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// TestPersistentConflictCostIsBounded counts, in virtual time, the requests of a pass whose write always meets a
// conflict.
func TestPersistentConflictCostIsBounded(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	for name, row := range map[string]struct {
		path string
		acts func(ctx context.Context, c client.Client, pod *corev1.Pod) error
	}{
		"a status write that always conflicts: the second conflict is an error": {path: "/status"},
		"a write of a dependent object that always conflicts: retried for 10 s, then an error": {path: "/configmaps/child", acts: func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
			var child corev1.ConfigMap
			if err := c.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: "child"}, &child); err != nil {
				return err
			}
			changed := child.DeepCopy()
			changed.Data = map[string]string{"a": "b"}
			return reconcile.PatchObserved(ctx, c, &child, changed, "tester")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace, isOn, refused := env.CreateNamespace(t), &atomic.Bool{}, &atomic.Int64{}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			env.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
			env.ExpectCreated(t, pod)
			env.ExpectCreated(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "child"}})
			c, err := client.New(env.WithTransport(func(next http.RoundTripper) http.RoundTripper {
				return conflictingWrites{next, row.path, isOn, refused}
			}).Config, client.Options{Scheme: env.Client.Scheme()})
			testenv.ExpectNoError(t, err)
			begin := time.Unix(1_800_000_000, 0)
			now := clocktesting.NewFakePassiveClock(begin)
			pass := &reconcile.Pass[*corev1.Pod, *corev1.Pod, int]{
				Hub:     reconcile.Hub{Client: c, Recorder: events.NewFakeRecorder(100), Clock: now, Owner: "tester"},
				New:     func() *corev1.Pod { return &corev1.Pod{} },
				Observe: func(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) { return pod, nil },
				Decide:  func(*corev1.Pod) int { return 0 },
				Report: func(pod *corev1.Pod, _ *corev1.Pod, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
					pod.Status.Message = "done"
					return reconcile.FollowUp{}
				},
			}
			if row.acts != nil {
				pass.Act = func(ctx context.Context, pod *corev1.Pod, _ int) error { return row.acts(ctx, c, pod) }
			}
			limiter := reconcile.WorkerOptions{MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}.Options().RateLimiter
			request, passes, failures, last := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}, 0, 0, error(nil)
			isOn.Store(true)
			for now.Since(begin) < time.Minute {
				result, err := pass.Reconcile(t.Context(), request)
				after := result.RequeueAfter
				if passes++; err != nil {
					failures, last, after = failures+1, err, limiter.When(request)
				} else {
					limiter.Forget(request)
				}
				if after == 0 {
					t.Fatal("expected the pass to run again, found no requeue")
				}
				now.SetTime(now.Now().Add(after))
			}
			t.Logf("in a minute: %d passes, %d refused writes, %d errors; the last: %v", passes, refused.Load(), failures, last)
			if passes > 60 || refused.Load() > 60 || failures < 3 {
				t.Errorf("expected at most 60 passes and writes, and the errors of a back-off, found %d, %d and %d", passes, refused.Load(), failures)
			}
			if last == nil || !strings.Contains(last.Error(), "denied by the webhook") || !strings.Contains(last.Error(), "admission webhook") {
				t.Errorf("expected an error with the API server's message and a hint at the cause, found %v", last)
			}
			isOn.Store(false)
			if _, err := pass.Reconcile(t.Context(), request); err != nil {
				t.Errorf("expected the write to be made once it is allowed, found %v", err)
			}
			if err := env.Client.Get(t.Context(), request.NamespacedName, pod); err != nil || pod.Status.Message != "done" {
				t.Errorf("expected the status to be written, found %q and %v", pod.Status.Message, err)
			}
		})
	}
}

// TestEventsOfASavedStatusAreEmittedDespiteAConflict has another client change an object after the write of its
// status and before the write of the annotation that remembers it.
func TestEventsOfASavedStatusAreEmittedDespiteAConflict(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	namespace, isOn, refused := env.CreateNamespace(t), &atomic.Bool{}, &atomic.Int64{}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	env.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
	env.ExpectCreated(t, pod)
	c, err := client.New(env.WithTransport(func(next http.RoundTripper) http.RoundTripper {
		return conflictingWrites{next, "/pods/p", isOn, refused}
	}).Config, client.Options{Scheme: env.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	recorder, saves := events.NewFakeRecorder(10), 0
	pass := &reconcile.Pass[*corev1.Pod, string, int]{
		Hub:     reconcile.Hub{Client: c, Recorder: recorder, Clock: clock.RealClock{}, Owner: "tester"},
		New:     func() *corev1.Pod { return &corev1.Pod{} },
		Observe: func(_ context.Context, pod *corev1.Pod) (string, error) { return pod.Status.Message, nil },
		Decide:  func(string) int { return 0 },
		Report: func(pod *corev1.Pod, before string, _ int, _ *reconcile.RefusedError) reconcile.FollowUp {
			if pod.Status.Message = "found"; before == "found" {
				return reconcile.FollowUp{}
			}
			return reconcile.FollowUp{Events: []decision.Event{{Reason: "Found", Note: "it"}}, AfterSave: func() { saves++ }}
		},
		Status: reconcilestatus.Storage[*corev1.Pod]{
			RemembersAlways: true,
			Remember:        func(pod *corev1.Pod) map[string]any { return map[string]any{"message": pod.Status.Message} },
		},
	}
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
	for _, conflicts := range []bool{true, false} {
		isOn.Store(conflicts)
		if _, err := pass.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if len(recorder.Events) != 1 || saves != 1 || refused.Load() != 1 {
		t.Errorf("expected one event, one count and one refused write, found %d, %d and %d", len(recorder.Events), saves, refused.Load())
	}
	testenv.ExpectNoError(t, env.Client.Get(t.Context(), request.NamespacedName, pod))
	if text := pod.Annotations[statusannotation.KeyOf("tester")]; !strings.Contains(text, "found") {
		t.Errorf("expected the annotation to be written by the next pass, found %q", text)
	}
}
