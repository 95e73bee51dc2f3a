// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// A canary without steps pauses once, at one instance. A step of 1 percent would mean ten of a thousand instances.
func TestCanaryPausesAtItsSteps(t *testing.T) {
	t.Parallel()
	steps := []torporv1alpha1.CanaryStep{{InstanceWeight: 1}, {InstanceWeight: 50}}
	for name, row := range map[string]struct {
		spec torporv1alpha1.CFDeploymentSpec
		want process.RolloutOptions
	}{
		"a rolling deployment does not pause":                            {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.RollingDeployment}, process.RolloutOptions{}},
		"a canary without steps pauses at one instance":                  {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment}, process.RolloutOptions{CanaryOfOne: true}},
		"a canary without steps that was continued does not pause again": {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, ContinuedSteps: 1}, process.RolloutOptions{}},
		"a canary before its first step pauses at the first step":        {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps}, process.RolloutOptions{CanaryPercent: 1}},
		"a canary before its second step pauses at the second step":      {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps, ContinuedSteps: 1}, process.RolloutOptions{CanaryPercent: 50}},
		"a canary past its last step does not pause":                     {torporv1alpha1.CFDeploymentSpec{Strategy: torporv1alpha1.CanaryDeployment, Steps: steps, ContinuedSteps: 2}, process.RolloutOptions{}},
	} {
		if found := rolloutOptions(&torporv1alpha1.CFDeployment{Spec: row.spec}, false); found != row.want {
			t.Errorf("%s: expected %+v, found %+v", name, row.want, found)
		}
	}
}
