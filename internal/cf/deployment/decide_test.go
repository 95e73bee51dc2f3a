// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Directly after a canary was continued, the app's condition may still report that the canary waits.
func TestContinuedCanaryIsNotPausedAgain(t *testing.T) {
	for name, row := range map[string]struct {
		continued            int32
		generation, observed int64
		want                 torporv1alpha1.DeploymentState
	}{
		"a waiting canary is paused":                                    {0, 1, 1, torporv1alpha1.PausedState},
		"a canary that was just continued is not paused":                {1, 2, 1, torporv1alpha1.DeployingState},
		"a canary waiting at its second step is paused":                 {1, 2, 2, torporv1alpha1.PausedState},
		"a canary past its last step is not paused":                     {2, 3, 3, torporv1alpha1.DeployingState},
		"a canary just continued past its last step is not paused":      {2, 3, 2, torporv1alpha1.DeployingState},
		"a canary continued more often than it has steps is not paused": {7, 8, 8, torporv1alpha1.DeployingState},
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

// Two broken deployments are in progress. Cancelling the second restores the droplet that serves, not the droplet of
// the first.
func TestCancelBringsTheDropletBackThatServes(t *testing.T) {
	d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: torporv1alpha1.CFDeploymentSpec{Cancelled: true}}
	d.Status.FormerDroplet = "bad"
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		korifiv1alpha1.RevisionAnnotation: "2", korifiv1alpha1.LastStopRevisionAnnotation: "0", torporv1alpha1.DeploymentAnnotation: "d",
	}}}
	app.Spec.DesiredState = korifiv1alpha1.StartedState
	app.Status.Restarts = []korifiv1alpha1.Restart{{Revision: 2, Droplet: "fix"}, {Revision: 1, Droplet: "bad"}, {Revision: 0, Droplet: "good"}}
	lrp := func(processType string, revision string, ready int32) eiriniv1.LRP {
		return eiriniv1.LRP{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{korifiv1alpha1.ProcessGUIDLabel: processType, korifiv1alpha1.ProcessTypeLabel: processType}},
			Spec:       eiriniv1.LRPSpec{Version: revision}, Status: eiriniv1.LRPStatus{Replicas: ready},
		}
	}
	for want, lrps := range map[string][]eiriniv1.LRP{
		"good": {lrp("web", "0", 3), lrp("web", "1", 0), lrp("web", "2", 1), lrp("worker", "1", 1)},
		"bad":  {lrp("worker", "0", 0), lrp("worker", "1", 1), lrp("worker", "2", 0)},
	} {
		p := Decide(Observed{Deployment: d, App: app, LRPs: lrps})
		after := app.DeepCopy()
		if ChangeApp(after, d, p); p.Do != CancelRevision || after.Spec.CurrentDropletRef.Name != want {
			t.Errorf("expected the droplet %s, found %+v and %+v", want, p, after.Spec.CurrentDropletRef)
		}
	}
}

// While a Slumber stops an app, no instance runs. The app's spec requests a start, but its Ready condition reports a
// stopped app.
func TestDeploymentWaitsWhileASlumberStopsTheApp(t *testing.T) {
	const waits = "until the Slumber that stops the app starts it again"
	for name, row := range map[string]struct {
		status    metav1.ConditionStatus
		reason    string
		cancelled bool
		want      torporv1alpha1.DeploymentState
		waits     bool
	}{
		"deployment of a running app is complete":                     {metav1.ConditionTrue, korifiv1alpha1.RunningReason, false, torporv1alpha1.DeployedState, false},
		"deployment of a stopped app waits for the start of the app":  {metav1.ConditionTrue, korifiv1alpha1.StoppedReason, false, torporv1alpha1.DeployingState, true},
		"deployment of a stopping app waits for the start of the app": {metav1.ConditionFalse, korifiv1alpha1.StoppingReason, false, torporv1alpha1.DeployingState, true},
		"deployment is in progress while the app starts":              {metav1.ConditionFalse, korifiv1alpha1.StartingReason, false, torporv1alpha1.DeployingState, false},
		"cancellation is complete when the app runs":                  {metav1.ConditionTrue, korifiv1alpha1.RunningReason, true, torporv1alpha1.CanceledState, false},
		"cancellation waits for the start of a stopped app":           {metav1.ConditionTrue, korifiv1alpha1.StoppedReason, true, torporv1alpha1.CancelingState, true},
		"cancellation is in progress while the app starts":            {metav1.ConditionFalse, korifiv1alpha1.StartingReason, true, torporv1alpha1.CancelingState, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
			app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
				korifiv1alpha1.RevisionAnnotation: "1", torporv1alpha1.DeploymentAnnotation: "d",
			}}}
			if d.Spec.Cancelled = row.cancelled; row.cancelled {
				app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] = "d"
			}
			app.Spec.DesiredState, app.Status.ObservedRevision = korifiv1alpha1.StartedState, 1
			app.Status.Conditions = []metav1.Condition{{Type: korifiv1alpha1.ReadyCondition, Status: row.status, Reason: row.reason}}
			if p := Decide(Observed{Deployment: d, App: app}); p.State != row.want || strings.Contains(p.Why, waits) != row.waits {
				t.Errorf("expected %s, and %t that it waits, found %+v", row.want, row.waits, p)
			}
		})
	}
}
