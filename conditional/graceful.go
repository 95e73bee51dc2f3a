// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// GracefulReconciler lets reconciles that are under way at a stop end in peace: their context ends only so long after
// that of the controller, and their scope with them. Its values and its deadline stay. The grace should be shorter than
// the group's drain timeout, and than the manager's GracefulShutdownTimeout.
func GracefulReconciler[R comparable](r reconcile.TypedReconciler[R], grace time.Duration) reconcile.TypedReconciler[R] {
	return reconcile.TypedFunc[R](func(ctx context.Context, request R) (reconcile.Result, error) {
		late := context.WithoutCancel(ctx)
		// WithoutCancel drops the deadline as well, which the controller's ReconciliationTimeout may have set.
		if deadline, ok := ctx.Deadline(); ok {
			var end context.CancelFunc
			late, end = context.WithDeadline(late, deadline)
			defer end()
		}
		late, cancel := context.WithCancelCause(late)
		defer cancel(nil)
		defer context.AfterFunc(ctx, func() {
			select {
			case <-time.After(grace):
			case <-late.Done():
			}
			cancel(context.Cause(ctx))
		})()
		return r.Reconcile(late, request)
	})
}
