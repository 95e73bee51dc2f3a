// SPDX-License-Identifier: Apache-2.0

package revision

import (
	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ExistingRevision is a revision with an LRP or Pods. A cancelled deployment may restore it.
type ExistingRevision struct {
	Number int64
	// Serves is true if at least one instance is ready.
	Serves bool
	// Ending is true if the revision's LRP is being deleted or does not exist, so the revision cannot be restored. An
	// LRP without instances can be restored.
	Ending bool
}

// SelectTargetRevision returns the revision that should run. This is the current revision, unless its deployment was
// cancelled. After a cancellation it is the newest earlier revision that serves, or the oldest one if none serves.
// Without an earlier revision, it is the current one. Cloud Controller uses the same rule.
func SelectTargetRevision(current, lastStop int64, cancelled bool, existing []ExistingRevision) int64 {
	if !cancelled {
		return current
	}
	target := ExistingRevision{Number: current}
	for _, r := range existing {
		// A stop permanently ends all earlier revisions, so a cancelled deployment cannot restore them.
		if r.Number < lastStop || r.Number >= current || r.Ending {
			continue
		}
		if r.Serves && (!target.Serves || r.Number > target.Number) || !r.Serves && !target.Serves && r.Number < target.Number {
			target = r
		}
	}
	return target.Number
}

// SelectRestored returns the revision that a cancelled deployment restores for a process with the given LRPs. It
// returns the app's revision if no other can be restored.
func SelectRestored(app *korifiv1alpha1.CFApp, lrps []*eiriniv1.LRP) int64 {
	var existing []ExistingRevision
	for _, l := range lrps {
		existing = append(existing, ExistingRevision{Number: ParseVersion(l.Spec.Version), Serves: l.Status.Replicas > 0, Ending: l.DeletionTimestamp != nil})
	}
	current, lastStop, _ := ReadRevision(app)
	return SelectTargetRevision(current, lastStop, true, existing)
}

// SelectReported is like SelectTargetRevision, with the revisions in the status of a process.
func SelectReported(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess, cancelled bool) int64 {
	var existing []ExistingRevision
	for _, r := range process.Status.Revisions {
		existing = append(existing, ExistingRevision{Number: r.Revision, Serves: r.Ready > 0, Ending: !r.Restorable && r.Desired == 0})
	}
	current, lastStop, _ := ReadRevision(app)
	return SelectTargetRevision(current, lastStop, cancelled, existing)
}

// IsDeploymentOver reports whether a deployment is finished or is being deleted. Such a deployment no longer changes
// its app, and cannot be cancelled.
func IsDeploymentOver(d *torporv1alpha1.CFDeployment) bool {
	return d.Status.Value == torporv1alpha1.FinalizedDeployment || !d.DeletionTimestamp.IsZero()
}
