// SPDX-License-Identifier: Apache-2.0

// Package deployment decides how a CFDeployment becomes a new revision of its app, and how far it is. It is pure; package
// controller beside it observes and acts.
package deployment

import (
	"math"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// Observed is what is known of a deployment.
type Observed struct {
	Deployment *torporv1alpha1.CFDeployment
	// App is nil if it is gone.
	App *korifiv1alpha1.CFApp
	// AnotherWriter says who else writes the app, so that nothing of it may be changed; empty if nobody does.
	AnotherWriter string
	// HasLaterDeployment says that the app's annotation names a deployment that was created after this one.
	HasLaterDeployment bool
	// LRPs are the app's as the API server knows them; they are read only when it may be too late to cancel.
	LRPs []eiriniv1.LRP
	// Finished are the deployments of the same app that are over; they are read only when this one is.
	Finished []torporv1alpha1.CFDeployment
}

// Action is what is done to the app or to older deployments.
type Action int

// The actions.
const (
	DoNothing Action = iota
	// BeginRevision asks admission for a new revision.
	BeginRevision
	// CancelRevision takes the revision back.
	CancelRevision
	// DeleteExpired deletes the oldest finished deployments of the app.
	DeleteExpired
)

// Plan is how far the deployment is, and what to do.
type Plan struct {
	State torporv1alpha1.DeploymentState
	Do    Action
	// Prepare records what runs before the revision begins; Revision is the one that the deployment began, 0 while it is not known.
	Prepare  bool
	Revision int64
	// Droplet is that of the revision which CancelRevision brings back.
	Droplet string
	// LookAgain asks for another pass soon, because no event would cause one.
	LookAgain bool
	// Expired are what DeleteExpired deletes.
	Expired []torporv1alpha1.CFDeployment
	Why     string
}

// IsOver reports whether nothing more happens to a deployment.
func IsOver(d *torporv1alpha1.CFDeployment) bool {
	return d.Status.Value == torporv1alpha1.FinalizedDeployment || !d.DeletionTimestamp.IsZero()
}

// Decide is total: every Observed has exactly one Plan. The app's annotations say whether this deployment's revision began and
// whether it was cancelled; the status of the deployment only remembers what ran before.
func Decide(o Observed) Plan {
	d := o.Deployment
	if IsOver(d) {
		return planPrune(o)
	}
	if o.App == nil || !o.App.DeletionTimestamp.IsZero() {
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app is gone"}
	}
	if o.AnotherWriter != "" {
		return Plan{State: torporv1alpha1.DeployingState, Why: "the app is left alone: " + o.AnotherWriter}
	}
	current, lastStop, _ := revision.ReadRevision(o.App)
	begun := o.App.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name
	cancelled := begun && revision.IsCancelled(o.App)
	switch {
	case !begun && (o.HasLaterDeployment || d.Status.Revision != 0):
		return Plan{State: torporv1alpha1.SupersededState, Why: "another deployment came after it"}
	case !begun && d.Spec.Cancelled:
		return Plan{State: torporv1alpha1.CanceledState, Why: "it was cancelled before it began"}
	case !begun && !d.Status.Prepared:
		// What runs now is saved before the revision begins: afterwards the app no longer shows it, and a cancel needs it.
		return Plan{State: torporv1alpha1.DeployingState, Prepare: true, LookAgain: true, Why: "note what runs"}
	case !begun:
		return Plan{State: torporv1alpha1.DeployingState, Do: BeginRevision, LookAgain: true, Why: "ask for a revision"}
	case lastStop >= current && d.Status.Revision != 0 && d.Status.Revision < current:
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app was stopped or restarted"}
	case o.App.Spec.DesiredState != korifiv1alpha1.StartedState:
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app was stopped"}
	case AwaitsCancel(d, o.App) && canComeBack(o.LRPs, current, lastStop):
		return Plan{State: torporv1alpha1.CancelingState, Revision: current, Do: CancelRevision, Droplet: findDropletBefore(o, current, lastStop), Why: "take it back"}
	}
	p := planProgress(o, current, cancelled)
	p.Revision = current
	p.LookAgain = d.Status.ObservedGeneration != d.Generation
	if AwaitsCancel(d, o.App) {
		p.Why = "it was too late to cancel, because of what ran before nothing is left to come back: " + p.Why
	}
	return p
}

// AwaitsCancel reports whether a deployment's revision was begun and has to be taken back, if what is left of the LRPs allows it. A
// deployment that is through needs no look at them.
func AwaitsCancel(d *torporv1alpha1.CFDeployment, app *korifiv1alpha1.CFApp) bool {
	return d.Spec.Cancelled && app.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name && !revision.IsCancelled(app)
}

// canComeBack reports whether every process that runs the current revision has an earlier one that nobody has deleted, and that
// there is one at all. Otherwise some of what is called cancelled would run on.
func canComeBack(lrps []eiriniv1.LRP, current, lastStop int64) bool {
	hasCurrent, hasEarlier := map[string]bool{}, map[string]bool{}
	for i := range lrps {
		l := &lrps[i]
		process, number := l.Labels[korifiv1alpha1.ProcessGUIDLabel], revision.ParseVersion(l.Spec.Version)
		switch {
		case number == current:
			hasCurrent[process] = true
		case number >= lastStop && number < current && l.DeletionTimestamp.IsZero():
			hasEarlier[process] = true
		}
	}
	for process := range hasCurrent {
		if !hasEarlier[process] {
			return false
		}
	}
	return len(hasEarlier) > 0
}

// findDropletBefore returns the droplet of the revision that comes back when the current one is cancelled. It is that of the web process,
// or of all others if there is none. Where the app does not remember it, what ran when the deployment began is taken.
func findDropletBefore(o Observed, current, lastStop int64) string {
	byType := map[bool][]revision.ExistingRevision{}
	for i := range o.LRPs {
		if l := &o.LRPs[i]; l.DeletionTimestamp.IsZero() {
			isWeb := l.Labels[korifiv1alpha1.ProcessTypeLabel] == korifiv1alpha1.WebProcess
			byType[isWeb] = append(byType[isWeb], revision.ExistingRevision{Number: revision.ParseVersion(l.Spec.Version), Serves: l.Status.Replicas > 0})
		}
	}
	existing := byType[true]
	if len(existing) == 0 {
		existing = byType[false]
	}
	target := revision.SelectTargetRevision(current, lastStop, true, existing)
	for _, r := range revision.ListRestarts(o.App) {
		if r.Revision == target && r.Droplet != "" {
			return r.Droplet
		}
	}
	return o.Deployment.Status.FormerDroplet
}

// CountSteps returns how often a canary waits; 0 for another deployment.
func CountSteps(d *torporv1alpha1.CFDeployment) int32 {
	if d.Spec.Strategy != torporv1alpha1.CanaryDeployment {
		return 0
	}
	return int32(max(1, min(len(d.Spec.Steps), math.MaxInt32)))
}

const untilStarted = "until the app is started again, which a Slumber stops"

// planProgress reports how far a revision is that has begun. It reads the app's condition Ready, which the app's controller
// reports of all processes together: it changes nothing but the report.
func planProgress(o Observed, current int64, cancelled bool) Plan {
	ready := meta.FindStatusCondition(o.App.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := ready != nil && o.App.Status.ObservedRevision == current && o.App.Status.ObservedGeneration == o.App.Generation
	through := fresh && ready.Status == metav1.ConditionTrue && ready.Reason == korifiv1alpha1.RunningReason
	// People want the app started, so it is a Slumber that stops it: then it is Ready with nothing that runs.
	stopped := fresh && (ready.Reason == korifiv1alpha1.StoppedReason || ready.Reason == korifiv1alpha1.StoppingReason)
	switch {
	case cancelled && through:
		return Plan{State: torporv1alpha1.CanceledState, Why: "what ran before runs again"}
	case cancelled && stopped:
		return Plan{State: torporv1alpha1.CancelingState, Why: "what ran before waits " + untilStarted}
	case cancelled:
		return Plan{State: torporv1alpha1.CancelingState, Why: "what ran before comes back"}
	case stopped:
		return Plan{State: torporv1alpha1.DeployingState, Why: "the new revision waits " + untilStarted}
	case through:
		return Plan{State: torporv1alpha1.DeployedState, Why: "every instance runs the new revision"}
	// The app's condition is behind the last continue for a moment, and a deployment without another step waits for nobody.
	case fresh && ready.Reason == korifiv1alpha1.DeploymentPausedReason && o.Deployment.Spec.ContinuedSteps < CountSteps(o.Deployment) &&
		o.Deployment.Status.ObservedGeneration == o.Deployment.Generation:
		return Plan{State: torporv1alpha1.PausedState, Why: ready.Message}
	case fresh && ready.Reason == korifiv1alpha1.BlockedReason:
		return Plan{State: torporv1alpha1.DeployingState, Why: ready.Message}
	default:
		return Plan{State: torporv1alpha1.DeployingState, Why: "the new revision comes up"}
	}
}

// ChangeApp makes the change of the app that a plan asks for.
func ChangeApp(app *korifiv1alpha1.CFApp, d *torporv1alpha1.CFDeployment, plan Plan) {
	if app.Annotations == nil {
		app.Annotations = map[string]string{}
	}
	switch plan.Do {
	case BeginRevision:
		app.Annotations[torporv1alpha1.DeploymentAnnotation] = d.Name
		if app.Spec.DesiredState == korifiv1alpha1.StartedState { // The revision of a stopped app began when it was stopped.
			// Admission lets the manager, and nobody else, name another person. Without one it records the manager.
			app.Annotations[torporv1alpha1.RevisedByAnnotation] = d.Annotations[torporv1alpha1.RequestedByAnnotation]
			if d.Annotations[torporv1alpha1.RequestedByAnnotation] == "" {
				delete(app.Annotations, torporv1alpha1.RevisedByAnnotation)
			}
		}
		app.Spec.DesiredState = korifiv1alpha1.StartedState // An app that is stopped is started by its deployment.
		if d.Spec.DropletRef != nil {
			app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: d.Spec.DropletRef.Name}
		}
	case CancelRevision:
		app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] = d.Name
		if plan.Droplet != "" {
			app.Spec.CurrentDropletRef = &korifiv1alpha1.Reference{Name: plan.Droplet}
		}
	case DoNothing, DeleteExpired:
	}
}
