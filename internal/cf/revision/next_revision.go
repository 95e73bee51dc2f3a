// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"fmt"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// RevisionState holds the values that admission stores in the annotations of an app.
type RevisionState struct {
	// Revision is the current revision. LastStop is the newest revision that no deployment began.
	Revision, LastStop int64
	// Droplet is the droplet of the revision. It is empty while the app is stopped or has no droplet.
	Droplet string
	// Cause is the reason why the change begins a revision. It is empty if none begins.
	Cause korifiv1alpha1.RestartCause
}

// NextRevision returns the state after a change, or an error if the change is rejected. old is nil for a creation. A
// new revision begins when a started app is stopped, restarted or deployed, or when the old revision is unreadable. The
// new number is computed from old. Therefore, a change that is admitted twice begins one revision, and a repeated
// change begins none.
func NextRevision(old, updated *korifiv1alpha1.CFApp) (RevisionState, error) {
	if old == nil {
		return firstState(updated)
	}
	revision, lastStop, unreadable := ReadRevision(old)
	m := RevisionState{Revision: revision, LastStop: lastStop, Droplet: old.Annotations[torporv1alpha1.DropletAnnotation]}
	if m.Cause = restartCause(old, updated); unreadable != "" {
		m.Cause, m.Revision = korifiv1alpha1.CausedByRepair, repairedRevision(old, updated)-1
	}
	if m.Cause != "" {
		m.Revision++
	}
	if m.Cause != "" && m.Cause != korifiv1alpha1.CausedByDeployment {
		// A stop, a restart or a repair sets LastStop to the new revision, so every older revision must be deleted
		// first. A deployment leaves LastStop unchanged, so its revision runs next to the revisions that it replaces.
		//
		// Invariant: let r be a revision, s the value of LastStop when r began, and q < s another revision. No Pod of r
		// runs while a Pod of q remains, unless revisions may overlap or the drain timeout has passed. Package process
		// enforces this, and its model test TestEveryStateIsSafeAndConverges checks it.
		m.LastStop = m.Revision
	}
	m.Droplet = pinnedDroplet(old, updated, m)
	if m.Revision > MaxRevision {
		return RevisionState{}, fmt.Errorf("metadata.annotations[%s]: expected at most %d, found no revision left; create a new app", korifiv1alpha1.RevisionAnnotation, MaxRevision)
	}
	return m, rejectEdits(old, updated, m)
}

// firstState returns the state of a new app. An app that was restored from a backup keeps its revision.
func firstState(app *korifiv1alpha1.CFApp) (RevisionState, error) {
	text, ok := app.Annotations[korifiv1alpha1.RevisionAnnotation]
	if !ok {
		text = korifiv1alpha1.FirstRevision
	}
	revision, ok := ParseRevision(text)
	if !ok {
		return RevisionState{}, fmt.Errorf("metadata.annotations[%s]: expected a number such as %q, found %q; leave the annotation out",
			korifiv1alpha1.RevisionAnnotation, korifiv1alpha1.FirstRevision, text)
	}
	m := RevisionState{Revision: revision, LastStop: revision}
	m.Droplet = pinnedDroplet(&korifiv1alpha1.CFApp{}, app, m)
	return m, nil
}

func restartCause(old, updated *korifiv1alpha1.CFApp) korifiv1alpha1.RestartCause {
	asks := func(key string) bool {
		value := updated.Annotations[key]
		return value != "" && value != old.Annotations[key]
	}
	switch {
	case old.Spec.DesiredState != korifiv1alpha1.StartedState:
		return ""
	case updated.Spec.DesiredState != korifiv1alpha1.StartedState:
		return korifiv1alpha1.CausedByStop
	case asks(torporv1alpha1.RestartRequestAnnotation):
		return korifiv1alpha1.CausedByRestart
	case asks(torporv1alpha1.DeploymentAnnotation):
		return korifiv1alpha1.CausedByDeployment
	default:
		return ""
	}
}

// repairedRevision returns the revision with which a change replaces an unreadable one. If the change contains a
// revision above status.observedRevision, it returns that revision, because the author of the repair has checked the
// LRPs. Otherwise it returns the first revision that no controller has observed.
func repairedRevision(old, updated *korifiv1alpha1.CFApp) int64 {
	if n, ok := ParseRevision(updated.Annotations[korifiv1alpha1.RevisionAnnotation]); ok && n > old.Status.ObservedRevision {
		return n
	}
	return old.Status.ObservedRevision + 1
}

// pinnedDroplet returns the droplet of a revision. It is the app's current droplet when the revision starts, and stays
// the same until the revision ends or its deployment is cancelled. A cancellation pins the app's current droplet, which
// the controller of deployments sets to the earlier one.
func pinnedDroplet(old, updated *korifiv1alpha1.CFApp, m RevisionState) string {
	switch {
	case updated.Spec.DesiredState != korifiv1alpha1.StartedState:
		return ""
	case m.Cause == "" && old.Spec.DesiredState == korifiv1alpha1.StartedState && m.Droplet != "" && IsCancelled(old) == IsCancelled(updated):
		return m.Droplet
	case updated.Spec.CurrentDropletRef == nil:
		return ""
	default:
		return updated.Spec.CurrentDropletRef.Name
	}
}

// IsCancelled reports whether the app's deployment was cancelled.
func IsCancelled(app *korifiv1alpha1.CFApp) bool {
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	return name != "" && app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] == name
}
