// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/internal/reconcile/urgency"
)

// goesOnWithin is the longest interval after which a pass counts as the continuation of the previous one, which has
// just saved its report.
const goesOnWithin = time.Second

// begunFirst gives passes that continue priority over passes that begin. A cluster that has begun continues before
// another one begins, so its machines change while other clusters are recorded. With equal priorities, no machine of
// a fleet would be ordered to change before the last cluster has begun.
type begunFirst struct{ ctrlreconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (b begunFirst) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := b.Reconciler.Reconcile(ctx, req)
	// Without an explicit priority, a pass would keep the priority of the previous one forever.
	result.Priority = new(urgency.UsualPriority)
	if result.RequeueAfter > 0 && result.RequeueAfter < goesOnWithin {
		result.Priority = new(urgency.UrgentPriority)
	}
	if err != nil {
		return result, fmt.Errorf("pass: %w", err)
	}
	return result, nil
}
