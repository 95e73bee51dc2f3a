// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/torpor-dev/torpor/internal/cf/deployment"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act executes the plan. It returns ErrStale, without a change, if the app has changed since it was read.
func (c Controller) act(ctx context.Context, seen deployment.Observed, plan deployment.Plan) error {
	switch plan.Do {
	case deployment.BeginRevision, deployment.CancelRevision:
		after := seen.App.DeepCopy()
		deployment.ChangeApp(after, seen.Deployment, plan)
		if err := reconcile.PatchObserved(ctx, c.client, seen.App, after, Name); err != nil {
			return fmt.Errorf("change the app: %w", err)
		}
	case deployment.DeleteExpired:
		var errs []error
		for i := range plan.Expired {
			errs = append(errs, reconcile.DeleteObserved(ctx, c.client, &plan.Expired[i]))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("delete finished deployments: %w", err)
		}
	case deployment.DoNothing:
	}
	return nil
}
