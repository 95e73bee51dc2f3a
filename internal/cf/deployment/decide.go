// SPDX-License-Identifier: Apache-2.0

// Package deployment decides how a CFDeployment becomes a new revision of its app, and what it reports. It is pure;
// package controller observes and acts.
package deployment

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// Observed is the observed state of a deployment.
type Observed struct {
	Deployment *torporv1alpha1.CFDeployment
	// App is nil if it does not exist.
	App *korifiv1alpha1.CFApp
	// AnotherWriter describes another project that writes the app, or is empty. If it is set, the app must not be
	// changed.
	AnotherWriter string
	// HasLaterDeployment is true if the app's annotation refers to a deployment that was created after this one.
	HasLaterDeployment bool
	// LRPs are the app's LRPs, read from the API server. They are read only if the deployment is to be cancelled.
	LRPs []eiriniv1.LRP
	// Finished are the finished deployments of the same app. They are read only if this deployment is finished or being
	// deleted.
	Finished []torporv1alpha1.CFDeployment
}

// Action is a change to the app or to finished deployments.
type Action int

// These are the actions on a deployment.
const (
	DoNothing Action = iota
	// BeginRevision changes the app so that admission begins a new revision, or starts a stopped app.
	BeginRevision
	// CancelRevision marks the deployment as cancelled in the app, and restores the earlier droplet.
	CancelRevision
	// DeleteExpired deletes the oldest finished deployments of the app.
	DeleteExpired
)

// Plan is the state of the deployment, and the next action.
type Plan struct {
	State torporv1alpha1.DeploymentState
	Do    Action
	// Prepare is true if the current droplet must be recorded before the revision begins. Revision is the revision that
	// the deployment has begun; it is 0 until it is known.
	Prepare  bool
	Revision int64
	// Droplet is the droplet of the revision that CancelRevision restores.
	Droplet string
	// LookAgain requests another reconciliation soon, because no event would trigger one.
	LookAgain bool
	// Expired are the deployments that DeleteExpired deletes.
	Expired []torporv1alpha1.CFDeployment
	Why     string
}

// Decide is total: every Observed has exactly one Plan. The app's annotations record whether this deployment's revision
// began and whether it was cancelled. The deployment's status records the droplet before the revision, and the
// revision.
func Decide(o Observed) Plan {
	d := o.Deployment
	if revision.IsDeploymentOver(d) {
		return planPrune(o)
	}
	if o.App == nil || !o.App.DeletionTimestamp.IsZero() {
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app does not exist or is being deleted"}
	}
	if o.AnotherWriter != "" {
		return Plan{State: torporv1alpha1.DeployingState, Why: "the app is not changed: " + o.AnotherWriter}
	}
	current, lastStop, _ := revision.ReadRevision(o.App)
	begun := o.App.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name
	cancelled := begun && revision.IsCancelled(o.App)
	switch {
	case !begun && (o.HasLaterDeployment || d.Status.Revision != 0):
		return Plan{State: torporv1alpha1.SupersededState, Why: "a later deployment replaces this one"}
	case !begun && d.Spec.Cancelled:
		return Plan{State: torporv1alpha1.CanceledState, Why: "the deployment was cancelled before it began"}
	case !begun && !d.Status.Prepared:
		// The current droplet is recorded before the revision begins. A cancellation needs it, and the app no longer
		// has it afterwards.
		return Plan{State: torporv1alpha1.DeployingState, Prepare: true, LookAgain: true, Why: "record the current droplet"}
	case !begun:
		return Plan{State: torporv1alpha1.DeployingState, Do: BeginRevision, LookAgain: true, Why: "request a revision"}
	case lastStop >= current && d.Status.Revision != 0 && d.Status.Revision < current:
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app was stopped or restarted"}
	case o.App.Spec.DesiredState != korifiv1alpha1.StartedState:
		return Plan{State: torporv1alpha1.SupersededState, Why: "the app was stopped"}
	// The cancellation is rejected if the app's status has changed since the observation, so a completed deployment is
	// never cancelled.
	case AwaitsCancel(d, o.App) && !isThrough(o.App, current) && canComeBack(o.App, o.LRPs, current):
		return Plan{State: torporv1alpha1.CancelingState, Revision: current, Do: CancelRevision, Droplet: findDropletBefore(o), Why: "cancel the revision"}
	}
	p := planProgress(o, current, cancelled)
	p.Revision = current
	p.LookAgain = d.Status.ObservedGeneration != d.Generation
	if AwaitsCancel(d, o.App) {
		p.Why = "the cancellation came too late, because the deployment has completed or no earlier revision is left: " + p.Why
	}
	return p
}

// AwaitsCancel reports whether the user has cancelled a deployment whose revision has begun, and the revision has not
// been cancelled yet. Only then are LRPs read.
func AwaitsCancel(d *torporv1alpha1.CFDeployment, app *korifiv1alpha1.CFApp) bool {
	return d.Spec.Cancelled && app.Annotations[torporv1alpha1.DeploymentAnnotation] == d.Name && !revision.IsCancelled(app)
}

// canComeBack reports whether an earlier revision can be restored for every process of the current revision, and for at
// least one process. Otherwise some processes would continue to run the cancelled revision.
func canComeBack(app *korifiv1alpha1.CFApp, lrps []eiriniv1.LRP, current int64) bool {
	byProcess := map[string][]*eiriniv1.LRP{}
	for i := range lrps {
		guid := lrps[i].Labels[korifiv1alpha1.ProcessGUIDLabel]
		byProcess[guid] = append(byProcess[guid], &lrps[i])
	}
	restored := 0
	for _, ofProcess := range byProcess {
		hasCurrent := slices.ContainsFunc(ofProcess, func(l *eiriniv1.LRP) bool { return revision.ParseVersion(l.Spec.Version) == current })
		if revision.SelectRestored(app, ofProcess) != current {
			restored++
		} else if hasCurrent {
			return false
		}
	}
	return restored > 0
}

// findDropletBefore returns the droplet of the revision that is restored if the current one is cancelled. The web
// process determines the revision, or all other processes if there is no web process. If the app has not recorded that
// droplet, it returns the droplet from before the deployment.
func findDropletBefore(o Observed) string {
	byType := map[bool][]*eiriniv1.LRP{}
	for i := range o.LRPs {
		if l := &o.LRPs[i]; l.DeletionTimestamp.IsZero() {
			isWeb := l.Labels[korifiv1alpha1.ProcessTypeLabel] == korifiv1alpha1.WebProcess
			byType[isWeb] = append(byType[isWeb], l)
		}
	}
	lrps := byType[true]
	if len(lrps) == 0 {
		lrps = byType[false]
	}
	target := revision.SelectRestored(o.App, lrps)
	for _, r := range revision.ListRestarts(o.App) {
		if r.Revision == target && r.Droplet != "" {
			return r.Droplet
		}
	}
	return o.Deployment.Status.FormerDroplet
}

// CountSteps returns the number of times that a canary pauses. It returns 0 for other strategies.
func CountSteps(d *torporv1alpha1.CFDeployment) int32 {
	if d.Spec.Strategy != torporv1alpha1.CanaryDeployment {
		return 0
	}
	return int32(max(1, min(len(d.Spec.Steps), math.MaxInt32)))
}

// isThrough reports whether every instance of an app runs the revision, and no other instances are left.
func isThrough(app *korifiv1alpha1.CFApp, current int64) bool {
	ready := meta.FindStatusCondition(app.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := ready != nil && app.Status.ObservedRevision == current && app.Status.ObservedGeneration == app.Generation
	return fresh && ready.Status == metav1.ConditionTrue && ready.Reason == korifiv1alpha1.RunningReason
}

const untilStarted = "until the Slumber that stops the app starts it again"

// planProgress returns the state of a deployment whose revision has begun. It reads the app's Ready condition, which
// summarizes all processes.
func planProgress(o Observed, current int64, cancelled bool) Plan {
	ready := meta.FindStatusCondition(o.App.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := ready != nil && o.App.Status.ObservedRevision == current && o.App.Status.ObservedGeneration == o.App.Generation
	through := isThrough(o.App, current)
	// If a Slumber stops the app although its spec requests a start, the app is Ready without a running instance.
	stopped := fresh && (ready.Reason == korifiv1alpha1.StoppedReason || ready.Reason == korifiv1alpha1.StoppingReason)
	switch {
	case cancelled && through:
		return Plan{State: torporv1alpha1.CanceledState, Why: "the earlier revision runs again"}
	case cancelled && stopped:
		return Plan{State: torporv1alpha1.CancelingState, Why: "the earlier revision waits " + untilStarted}
	case cancelled:
		return Plan{State: torporv1alpha1.CancelingState, Why: "the earlier revision is being started again"}
	case stopped:
		return Plan{State: torporv1alpha1.DeployingState, Why: "the new revision waits " + untilStarted}
	case through:
		return Plan{State: torporv1alpha1.DeployedState, Why: "every instance runs the new revision"}
	// Directly after the user has continued the deployment, the app's condition may still describe the previous step. A
	// deployment past its last step is not paused.
	case fresh && ready.Reason == korifiv1alpha1.DeploymentPausedReason && o.Deployment.Spec.ContinuedSteps < CountSteps(o.Deployment) &&
		o.Deployment.Status.ObservedGeneration == o.Deployment.Generation:
		return Plan{State: torporv1alpha1.PausedState, Why: ready.Message}
	case fresh && ready.Reason == korifiv1alpha1.BlockedReason:
		return Plan{State: torporv1alpha1.DeployingState, Why: ready.Message}
	default:
		return Plan{State: torporv1alpha1.DeployingState, Why: "the new revision is starting"}
	}
}

// ChangeApp changes the app according to the plan.
func ChangeApp(app *korifiv1alpha1.CFApp, d *torporv1alpha1.CFDeployment, plan Plan) {
	if app.Annotations == nil {
		app.Annotations = map[string]string{}
	}
	switch plan.Do {
	case BeginRevision:
		app.Annotations[torporv1alpha1.DeploymentAnnotation] = d.Name
		// The stop of the app has already begun the revision of a stopped app.
		if app.Spec.DesiredState == korifiv1alpha1.StartedState {
			// Admission allows only the manager to set another user as the requester. If the annotation is missing,
			// admission records the manager.
			app.Annotations[torporv1alpha1.RevisedByAnnotation] = d.Annotations[torporv1alpha1.RequestedByAnnotation]
			if d.Annotations[torporv1alpha1.RequestedByAnnotation] == "" {
				delete(app.Annotations, torporv1alpha1.RevisedByAnnotation)
			}
		}
		app.Spec.DesiredState = korifiv1alpha1.StartedState // A deployment of a stopped app starts it.
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
