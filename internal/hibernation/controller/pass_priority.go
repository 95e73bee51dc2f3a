// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/internal/reconcile"
)

// goesOnWithin is the longest interval of a pass that goes on with what the last one has written.
const goesOnWithin = time.Second

// begunFirst has passes that go on run before those that begin: a cluster that has begun goes on before another one begins, so that its
// machines change while the others are written down. With all at one priority no machine of a fleet is ordered to change before the last
// cluster has begun.
type begunFirst struct{ ctrlreconcile.Reconciler }

// Reconcile implements reconcile.Reconciler.
func (b begunFirst) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := b.Reconciler.Reconcile(ctx, req)
	// Without one, a pass has the priority of the last for ever.
	result.Priority = new(reconcile.UsualPriority)
	if result.RequeueAfter > 0 && result.RequeueAfter < goesOnWithin {
		result.Priority = new(reconcile.UrgentPriority)
	}
	if err != nil {
		return result, fmt.Errorf("pass: %w", err)
	}
	return result, nil
}
