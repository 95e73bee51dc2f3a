// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// rollout is how the app's deployment goes on: its annotations say which one, and whether it was cancelled.
func (c Controller) rollout(_ context.Context, app *korifiv1alpha1.CFApp) (restart.Rollout, error) {
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" {
		return restart.Rollout{}, nil
	}
	return restart.Rollout{Cancelled: app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] == name}, nil
}
