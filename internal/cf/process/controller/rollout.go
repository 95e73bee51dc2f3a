// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// observeRollout reads how the app's deployment goes on: its annotations say which one, and whether it was cancelled; one that is
// gone goes on as if it had no options.
func (c Controller) observeRollout(ctx context.Context, app *korifiv1alpha1.CFApp) (process.RolloutOptions, error) {
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" {
		return process.RolloutOptions{}, nil
	}
	r := process.RolloutOptions{Cancelled: revision.IsCancelled(app)}
	var d torporv1alpha1.CFDeployment
	err := c.client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: name}, &d)
	if k8serrors.IsNotFound(err) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("read the deployment: %w", err)
	}
	r.MaxInFlight, r.CanaryPercent = d.Spec.MaxInFlight, canaryPercent(&d)
	return r, nil
}

// canaryPercent is where a canary waits; 0 if it does not. One without steps waits at one instance.
func canaryPercent(d *torporv1alpha1.CFDeployment) int32 {
	steps := d.Spec.Steps
	if len(steps) == 0 {
		// A weight of 1 % is rounded up to one instance.
		steps = []torporv1alpha1.CanaryStep{{InstanceWeight: 1}}
	}
	if d.Spec.Strategy != torporv1alpha1.CanaryDeployment || int(d.Spec.ContinuedSteps) >= len(steps) {
		return 0
	}
	return steps[d.Spec.ContinuedSteps].InstanceWeight
}
