// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// The app's condition still says that a canary waits when it was just continued.
func TestContinuedCanaryIsNotPausedAgain(t *testing.T) {
	for name, row := range map[string]struct {
		continued            int32
		generation, observed int64
		want                 torporv1alpha1.DeploymentState
	}{
		"one that waits is paused":                                {0, 1, 1, torporv1alpha1.PausedState},
		"one that was just continued is not":                      {1, 2, 1, torporv1alpha1.DeployingState},
		"one that waits at its second step is":                    {1, 2, 2, torporv1alpha1.PausedState},
		"one that was continued past its last step never is":      {2, 3, 3, torporv1alpha1.DeployingState},
		"one that was continued past its last step a moment ago":  {2, 3, 2, torporv1alpha1.DeployingState},
		"one that was continued more often than it has steps too": {7, 8, 8, torporv1alpha1.DeployingState},
	} {
		t.Run(name, func(t *testing.T) {
			d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: row.generation}}
			d.Spec.Strategy, d.Spec.Steps, d.Spec.ContinuedSteps = torporv1alpha1.CanaryDeployment, make([]torporv1alpha1.CanaryStep, 2), row.continued
			d.Status.ObservedGeneration, d.Status.Prepared = row.observed, true
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				korifiv1alpha1.RevisionAnnotation: "1", torporv1alpha1.DeploymentAnnotation: "d",
			}}}
			app.Spec.DesiredState, app.Status.ObservedRevision = korifiv1alpha1.StartedState, 1
			app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Reason: korifiv1alpha1.DeploymentPausedReason}}
			if p := Decide(Observed{Deployment: d, App: app}); p.State != row.want || row.generation != row.observed && !p.LookAgain {
				t.Errorf("expected %s, found %+v", row.want, p)
			}
		})
	}
}
