// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

type contextKey struct{}

func TestGracefulReconciler(t *testing.T) {
	const grace = 10 * time.Second
	stopped := errors.New("stopped")
	cases := map[string]struct {
		deadline time.Duration // of the controller's context, 0 for none
		stop     time.Duration // when it is cancelled, 0 for never
		work     time.Duration // of a reconcile that obeys its context
		ended    time.Duration // when the reconcile returned
		cause    error         // why its context ended, nil if it had not ended
	}{
		"a pass without a stop keeps its context":                                  {0, 0, time.Minute, time.Minute, nil},
		"a pass that ends soon after a stop keeps its context":                     {0, time.Second, 5 * time.Second, 5 * time.Second, nil},
		"a pass that takes longer than the grace period after a stop is cancelled": {0, time.Second, time.Minute, 11 * time.Second, stopped},
		"a deadline does not count as a stop":                                      {2 * time.Second, 0, time.Minute, 2 * time.Second, context.DeadlineExceeded},
		"a pass keeps its own deadline after a stop":                               {3 * time.Second, time.Second, time.Minute, 3 * time.Second, context.DeadlineExceeded},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := GracefulReconciler(reconcile.TypedFunc[string](func(ctx context.Context, request string) (reconcile.Result, error) {
					if request != "x" || ctx.Value(contextKey{}) != "kept" {
						t.Errorf("request %q with value %v", request, ctx.Value(contextKey{}))
					}
					select {
					case <-time.After(c.work):
					case <-ctx.Done():
					}
					if got := context.Cause(ctx); !errors.Is(got, c.cause) {
						t.Errorf("the context ended by %v, want %v", got, c.cause)
					}
					return reconcile.Result{RequeueAfter: 1}, nil
				}), grace)
				ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), contextKey{}, "kept"))
				defer cancel(nil)
				if c.deadline > 0 {
					var end context.CancelFunc
					ctx, end = context.WithTimeout(ctx, c.deadline)
					defer end()
				}
				if c.stop > 0 {
					time.AfterFunc(c.stop, func() { cancel(stopped) })
				}
				result, err := r.Reconcile(ctx, "x")
				if err != nil || result.RequeueAfter != 1 {
					t.Errorf("got %v, %v", result, err)
				}
				if got := time.Since(began); got != c.ended {
					t.Errorf("it returned after %s, want %s", got, c.ended)
				}
			})
		})
	}
}

// TestAStopInPeace stops a group during a reconcile, which then writes through its scope. The write has to succeed
// before the stop is complete.
func TestAStopInPeace(t *testing.T) {
	s := startAPIServer(t)
	entered, proceed := make(chan struct{}, 100), make(chan struct{})
	wrote := make(chan error, 100)
	setup := func(mgr manager.Manager) error {
		work := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if req.Name != "work" {
				return reconcile.Result{}, nil
			}
			entered <- struct{}{}
			<-proceed
			var cm corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil {
				return reconcile.Result{}, err
			}
			cm.Data = map[string]string{"done": "yes"}
			err := mgr.GetClient().Update(ctx, &cm)
			wrote <- err
			return reconcile.Result{}, err
		})
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("worker").Complete(GracefulReconciler(work, patience))
	}
	mgr := s.newManagerFor(s.cfg)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}}
	work := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
	for _, cm := range []*corev1.ConfigMap{owner, work} {
		testenv.Must(t, s.newClient().Create(t.Context(), cm))
	}
	when := switchedCondition{says: make(chan Status)}
	group := mustSetUp(t, mgr, when, setup, Events(mgr.GetEventRecorder("operator"), owner))
	s.startManager(mgr)
	when.says <- Status{State: True}
	<-entered
	when.says <- Status{State: False}
	s.waitForPhase(group, Draining)
	close(proceed)
	s.waitForPhase(group, Dormant)
	if err := <-wrote; err != nil {
		t.Errorf("the reconcile could not end in peace: %v", err)
	}
	s.eventually("both events are there", func(ctx context.Context) (bool, error) {
		var list eventsv1.EventList
		if err := s.newClient().List(ctx, &list, client.InNamespace("default")); err != nil {
			return false, err
		}
		var reasons []string
		for _, e := range list.Items {
			if e.Regarding.Name == owner.Name {
				reasons = append(reasons, e.Reason)
			}
		}
		slices.Sort(reasons)
		return slices.Equal(reasons, []string{ControllerStarted, ControllerStopped}), nil
	})
}
