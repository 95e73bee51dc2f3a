// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// A canary without steps pauses once, at one instance, because a share of 1 % would be ten of a thousand instances.
func TestCanaryPausesAtItsSteps(t *testing.T) {
	t.Parallel()
	steps := []torporv1alpha1.CanaryStep{{InstanceWeight: 1}, {InstanceWeight: 50}}
	for name, row := range map[string]struct {
		spec torporv1alpha1.CFDeploymentSpec
		want process.RolloutOptions
	}{
		"rolling": {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.RollingDeployment}, process.RolloutOptions{}},
		"a canary without steps: pauses at one instance":              {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment}, process.RolloutOptions{CanaryOfOne: true}},
		"a canary without steps that was continued: no longer pauses": {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, ContinuedSteps: 1}, process.RolloutOptions{}},
		"a canary in the first of two steps: the first step counts":   {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps}, process.RolloutOptions{CanaryPercent: 1}},
		"a canary in the second of two steps: the second step counts": {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps, ContinuedSteps: 1}, process.RolloutOptions{CanaryPercent: 50}},
		"a canary past the last of two steps: no longer pauses":       {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps, ContinuedSteps: 2}, process.RolloutOptions{}},
	} {
		if found := rolloutOptions(&torporv1alpha1.CFDeployment{Spec: row.spec}, false); found != row.want {
			t.Errorf("%s: expected %+v, found %+v", name, row.want, found)
		}
	}
}
