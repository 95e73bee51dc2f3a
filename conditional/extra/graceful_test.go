// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type contextKey struct{}

func TestGracefulReconciler(t *testing.T) {
	const grace = 10 * time.Second
	stopped := errors.New("stopped")
	cases := map[string]struct {
		deadline time.Duration // deadline of the controller's context, 0 for none
		stop     time.Duration // time of the controller's cancellation, 0 for never
		work     time.Duration // duration of a reconcile that respects its context
		ended    time.Duration // time at which the reconcile returned
		cause    error         // cause of the context's cancellation, nil if it was not cancelled
	}{
		"a reconcile without a stop keeps its context":                                         {0, 0, time.Minute, time.Minute, nil},
		"a reconcile that returns soon after a stop keeps its context":                         {0, time.Second, 5 * time.Second, 5 * time.Second, nil},
		"a reconcile that exceeds the grace period after a stop is cancelled":                  {0, time.Second, time.Minute, 11 * time.Second, stopped},
		"a reconcile without a stop ends at the deadline of its context":                       {2 * time.Second, 0, time.Minute, 2 * time.Second, context.DeadlineExceeded},
		"a reconcile ends at the deadline of its context during the grace period after a stop": {3 * time.Second, time.Second, time.Minute, 3 * time.Second, context.DeadlineExceeded},
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
