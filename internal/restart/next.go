// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"fmt"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Marks are what admission keeps in the annotations of an app.
type Marks struct {
	// Revision counts; LastStop is the one that the last stop or restart began.
	Revision, LastStop int64
	// Droplet is what the revision runs; empty while the app is stopped or has none.
	Droplet string
	// Cause is why the revision began with this very change; empty if it was there before.
	Cause korifiv1alpha1.RestartCause
}

// Next is the rule of revisions: what the marks are after a change, or why it is refused. old is nil at creation. A new
// revision begins when a started app is stopped, or a started app is asked to restart or to deploy; it is counted from
// old, so that the same change counted twice is the same revision, and a change sent again is none.
func Next(old, updated *korifiv1alpha1.CFApp) (Marks, error) {
	if old == nil {
		return first(updated)
	}
	revision, lastStop, unreadable := RevisionOf(old)
	m := Marks{Revision: revision, LastStop: lastStop, Droplet: old.Annotations[torporv1alpha1.DropletAnnotation]}
	if m.Cause = cause(old, updated); unreadable != "" {
		m.Cause, m.Revision = korifiv1alpha1.CausedByRepair, repaired(old, updated)-1
	}
	if m.Cause != "" {
		m.Revision++
	}
	if m.Cause != "" && m.Cause != korifiv1alpha1.CausedByDeployment {
		m.LastStop = m.Revision
	}
	m.Droplet = droplet(old, updated, m)
	if m.Revision > MaxRevision {
		return Marks{}, fmt.Errorf("metadata.annotations[%s]: expected at most %d, found no revision left; make a new app", korifiv1alpha1.RevisionAnnotation, MaxRevision)
	}
	return m, untouched(old, updated, m)
}

// first are the marks of a new app. One that was restored from elsewhere goes on with its revision.
func first(app *korifiv1alpha1.CFApp) (Marks, error) {
	text, ok := app.Annotations[korifiv1alpha1.RevisionAnnotation]
	if !ok {
		text = korifiv1alpha1.FirstRevision
	}
	revision, ok := ParseRevision(text)
	if !ok {
		return Marks{}, fmt.Errorf("metadata.annotations[%s]: expected a number such as %q, found %q; leave the annotation out",
			korifiv1alpha1.RevisionAnnotation, korifiv1alpha1.FirstRevision, text)
	}
	m := Marks{Revision: revision, LastStop: revision}
	m.Droplet = droplet(&korifiv1alpha1.CFApp{}, app, m)
	return m, nil
}

func cause(old, updated *korifiv1alpha1.CFApp) korifiv1alpha1.RestartCause {
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

// repaired is the revision after one that cannot be read: what the change proposes if nothing was acted on that is as
// high, because whoever repairs knows the LRPs, or else the first that was never acted on.
func repaired(old, updated *korifiv1alpha1.CFApp) int64 {
	if n, ok := ParseRevision(updated.Annotations[korifiv1alpha1.RevisionAnnotation]); ok && n > old.Status.ObservedRevision {
		return n
	}
	return old.Status.ObservedRevision + 1
}

// droplet is what a revision runs: the app's current droplet when the revision starts, and the same until it ends.
func droplet(old, updated *korifiv1alpha1.CFApp, m Marks) string {
	switch {
	case updated.Spec.DesiredState != korifiv1alpha1.StartedState:
		return ""
	case m.Cause == "" && old.Spec.DesiredState == korifiv1alpha1.StartedState && m.Droplet != "":
		return m.Droplet
	case updated.Spec.CurrentDropletRef == nil:
		return ""
	default:
		return updated.Spec.CurrentDropletRef.Name
	}
}
