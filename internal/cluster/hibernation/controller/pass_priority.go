// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/internal/reconcile/priority"
)

// goesOnWithin is the longest interval after which a pass is treated as the continuation of the previous pass, which
// has just saved its report.
const goesOnWithin = time.Second

// begunFirst prefers passes that continue the work of a previous pass to passes that begin. The machines of a cluster
// therefore change while other clusters are still being recorded. With equal priorities, no machine of a fleet would be
// ordered to change before the last cluster has begun.
type begunFirst struct{ ctrlreconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (b begunFirst) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := b.Reconciler.Reconcile(ctx, req)
	// Without an explicit priority, a pass would keep the priority of the previous one forever.
	result.Priority = new(priority.Usual)
	if result.RequeueAfter > 0 && result.RequeueAfter < goesOnWithin {
		result.Priority = new(priority.Urgent)
	}
	if err != nil {
		return result, fmt.Errorf("pass: %w", err)
	}
	return result, nil
}
