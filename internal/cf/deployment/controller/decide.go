// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// observation is what is seen of a deployment.
type observation struct {
	deployment *torporv1alpha1.CFDeployment
	// app is nil if it is gone.
	app *korifiv1alpha1.CFApp
	// later says that the app has a deployment that was made after this one.
	later bool
}

// plan is how far the deployment is, and how to change the app.
type plan struct {
	state  torporv1alpha1.DeploymentState
	change func(*korifiv1alpha1.CFApp)
	// prepare notes what runs now; revision is the one that the deployment began, 0 while it is not known.
	prepare  bool
	revision int64
	// again looks again soon, because nothing else would.
	again bool
	why   string
}

// decide says what is next. What the app's annotations say counts; the status only remembers what ran before.
func decide(o observation) plan {
	if o.app == nil || !o.app.DeletionTimestamp.IsZero() {
		return plan{state: torporv1alpha1.SupersededState, why: "the app is gone"}
	}
	d := o.deployment
	revision, lastStop, _ := restart.RevisionOf(o.app)
	mine := o.app.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name
	cancelled := o.app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] == d.Name
	switch {
	case !mine && (o.later || d.Status.Revision != 0):
		return plan{state: torporv1alpha1.SupersededState, why: "another deployment came after it"}
	case !mine && d.Spec.Cancelled:
		return plan{state: torporv1alpha1.CanceledState, why: "it was cancelled before it began"}
	case !mine && !d.Status.Prepared:
		return plan{state: torporv1alpha1.DeployingState, prepare: true, again: true, why: "note what runs"}
	case !mine:
		return plan{state: torporv1alpha1.DeployingState, change: ask(d), again: true, why: "ask for a revision"}
	case lastStop >= revision && d.Status.Revision != 0 && d.Status.Revision < revision:
		return plan{state: torporv1alpha1.SupersededState, why: "the app was stopped or restarted"}
	case o.app.Spec.DesiredState != korifiv1alpha1.StartedState:
		return plan{state: torporv1alpha1.SupersededState, why: "the app was stopped"}
	case d.Spec.Cancelled && !cancelled:
		return plan{state: torporv1alpha1.CancelingState, revision: revision, change: cancel(d), why: "take it back"}
	}
	p := progress(o, revision)
	p.revision = revision
	return p
}

// progress is what the app's condition says of a deployment that was asked for.
func progress(o observation, revision int64) plan {
	ready := meta.FindStatusCondition(o.app.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := ready != nil && o.app.Status.ObservedRevision == revision && o.app.Status.ObservedGeneration == o.app.Generation
	through := fresh && ready.Status == metav1.ConditionTrue
	switch {
	case o.deployment.Spec.Cancelled && through:
		return plan{state: torporv1alpha1.CanceledState, why: "what ran before runs again"}
	case o.deployment.Spec.Cancelled:
		return plan{state: torporv1alpha1.CancelingState, why: "what ran before comes back"}
	case through:
		return plan{state: torporv1alpha1.DeployedState, why: "every instance runs the new revision"}
	case fresh && ready.Reason == korifiv1alpha1.DeploymentPausedReason:
		return plan{state: torporv1alpha1.PausedState, why: ready.Message}
	default:
		return plan{state: torporv1alpha1.DeployingState, why: "the new revision comes up"}
	}
}

// ask begins the revision. An app that is stopped is started by its deployment.
func ask(d *torporv1alpha1.CFDeployment) func(*korifiv1alpha1.CFApp) {
	return func(app *korifiv1alpha1.CFApp) {
		app.Annotations[torporv1alpha1.DeploymentAnnotation] = d.Name
		app.Spec.DesiredState = korifiv1alpha1.StartedState
		if d.Spec.DropletRef != nil {
			app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: d.Spec.DropletRef.Name}
		}
	}
}

// cancel makes what ran before the app's current droplet again.
func cancel(d *torporv1alpha1.CFDeployment) func(*korifiv1alpha1.CFApp) {
	return func(app *korifiv1alpha1.CFApp) {
		app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] = d.Name
		if d.Status.FormerDroplet != "" {
			app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: d.Status.FormerDroplet}
		}
	}
}
