// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"fmt"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// RevisionState are what admission keeps in the annotations of an app.
type RevisionState struct {
	// Revision counts; LastStop is the one that the last stop or restart began.
	Revision, LastStop int64
	// Droplet is what the revision runs; empty while the app is stopped or has none.
	Droplet string
	// Cause is why the revision began with this very change; empty if it was there before.
	Cause korifiv1alpha1.RestartCause
}

// NextRevision is the rule of revisions: what the marks are after a change, or why it is refused. old is nil at creation. A new
// revision begins when a started app is stopped, or a started app is asked to restart or to deploy; it is counted from
// old, so that the same change counted twice is the same revision, and a change sent again is none.
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
		// The barrier: whatever is older has to be gone first. A deployment runs beside what it replaces.
		m.LastStop = m.Revision
	}
	m.Droplet = pinnedDroplet(old, updated, m)
	if m.Revision > MaxRevision {
		return RevisionState{}, fmt.Errorf("metadata.annotations[%s]: expected at most %d, found no revision left; make a new app", korifiv1alpha1.RevisionAnnotation, MaxRevision)
	}
	return m, rejectEdits(old, updated, m)
}

// firstState are the marks of a new app. One that was restored from elsewhere goes on with its revision.
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

// repairedRevision is the revision after one that cannot be read: what the change proposes if nothing was acted on that is as
// high, because the author of a repair knows the LRPs, or else the first that was never acted on.
func repairedRevision(old, updated *korifiv1alpha1.CFApp) int64 {
	if n, ok := ParseRevision(updated.Annotations[korifiv1alpha1.RevisionAnnotation]); ok && n > old.Status.ObservedRevision {
		return n
	}
	return old.Status.ObservedRevision + 1
}

// pinnedDroplet is what a revision runs: the app's current droplet when the revision starts, and the same until it ends or its
// deployment is cancelled: what is started after that runs what ran before.
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

// IsCancelled reports whether the app's deployment was taken back.
func IsCancelled(app *korifiv1alpha1.CFApp) bool {
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	return name != "" && app.Annotations[torporv1alpha1.CancelledDeploymentAnnotation] == name
}
