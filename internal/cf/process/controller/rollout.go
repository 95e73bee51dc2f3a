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

// observeRollout reads the options of the app's deployment. The app's annotations contain the deployment's name and
// whether it was cancelled. If the deployment was deleted, its rollout continues with default options.
func (c Controller) observeRollout(ctx context.Context, app *korifiv1alpha1.CFApp) (process.RolloutOptions, error) {
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" {
		return process.RolloutOptions{}, nil
	}
	cancelled := revision.IsCancelled(app)
	var d torporv1alpha1.CFDeployment
	err := c.client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: name}, &d)
	if k8serrors.IsNotFound(err) {
		return process.RolloutOptions{Cancelled: cancelled}, nil
	}
	if err != nil {
		return process.RolloutOptions{Cancelled: cancelled}, fmt.Errorf("read the deployment: %w", err)
	}
	options := rolloutOptions(&d, cancelled)
	options.Cancellable = !revision.IsDeploymentOver(&d)
	return options, nil
}

// rolloutOptions returns the options of a deployment. A canary pauses at its next step. A canary without steps pauses
// once, at one instance.
func rolloutOptions(d *torporv1alpha1.CFDeployment, cancelled bool) process.RolloutOptions {
	r, next := process.RolloutOptions{Cancelled: cancelled, MaxInFlight: d.Spec.MaxInFlight}, int(d.Spec.ContinuedSteps)
	switch {
	case d.Spec.Strategy != torporv1alpha1.CanaryDeployment:
	case next < len(d.Spec.Steps):
		r.CanaryPercent = d.Spec.Steps[next].InstanceWeight
	case next == 0:
		r.CanaryOfOne = true
	}
	return r
}
