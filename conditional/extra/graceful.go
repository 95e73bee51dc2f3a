// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// GracefulReconciler lets reconciles that are in progress finish when the controller stops. After the controller's
// context is cancelled, the context of these reconciles, and with it their scope, stays valid for the grace period. The
// values and the deadline of the context are preserved. The grace period should be shorter than the group's drain
// timeout and the manager's GracefulShutdownTimeout.
func GracefulReconciler[R comparable](r reconcile.TypedReconciler[R], grace time.Duration) reconcile.TypedReconciler[R] {
	return &gracefulReconciler[R]{r, grace}
}

type gracefulReconciler[R comparable] struct {
	reconciler reconcile.TypedReconciler[R]
	grace      time.Duration
}

// Reconcile calls the reconciler with a context that outlives ctx by the grace period.
func (g *gracefulReconciler[R]) Reconcile(ctx context.Context, request R) (reconcile.Result, error) {
	late := context.WithoutCancel(ctx)
	// WithoutCancel also drops the deadline, which the controller's ReconciliationTimeout may have set.
	if deadline, ok := ctx.Deadline(); ok {
		var end context.CancelFunc
		late, end = context.WithDeadline(late, deadline)
		defer end()
	}
	late, cancel := context.WithCancelCause(late)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(g.grace):
		case <-late.Done():
		}
		cancel(context.Cause(ctx))
	})()
	return g.reconciler.Reconcile(late, request)
}
