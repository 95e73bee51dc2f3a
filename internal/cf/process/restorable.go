// SPDX-License-Identifier: Apache-2.0

package process

import (
	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// listRestorable returns the revisions of a process that a cancelled deployment can restore: those with an LRP that is
// not being deleted. It may have no instances.
func listRestorable(lrps []ObservedLRP, serves func(revision int64) bool) []revision.ExistingRevision {
	var found []revision.ExistingRevision
	for _, l := range lrps {
		if !l.Deleting {
			found = append(found, revision.ExistingRevision{Number: l.Revision, Serves: serves(l.Revision)})
		}
	}
	return found
}

// ObserveLRP returns what decisions read of an LRP.
func ObserveLRP(l *eiriniv1.LRP) ObservedLRP {
	observed := ObservedLRP{Name: l.Name, Revision: revision.ParseVersion(l.Spec.Version), Instances: l.Spec.Instances}
	if l.DeletionTimestamp != nil {
		observed.Deleting, observed.DeletedAt = true, l.DeletionTimestamp.Time
	}
	return observed
}

// SelectRestored returns the revision that a cancelled deployment restores for a process with some LRPs, or the app's
// revision if it restores none.
func SelectRestored(app *korifiv1alpha1.CFApp, lrps []*eiriniv1.LRP) int64 {
	var observed []ObservedLRP
	ready := map[int64]bool{}
	for _, l := range lrps {
		one := ObserveLRP(l)
		observed, ready[one.Revision] = append(observed, one), ready[one.Revision] || l.Status.Replicas > 0
	}
	current, lastStop, _ := revision.ReadRevision(app)
	return revision.SelectTargetRevision(current, lastStop, true, listRestorable(observed, func(revision int64) bool { return ready[revision] }))
}

// ReadTargetRevision returns the revision whose instances users see: the app's revision, or the restored one after a
// cancelled deployment.
func ReadTargetRevision(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return readTarget(app, process, revision.IsCancelled(app))
}

// ReadRevisionBefore returns the revision of a process to which a cancelled deployment would return, or the app's
// revision if no other is left.
func ReadRevisionBefore(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess) int64 {
	return readTarget(app, process, true)
}

func readTarget(app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess, cancelled bool) int64 {
	var reported []ObservedLRP
	ready := map[int64]bool{}
	for _, r := range process.Status.Revisions {
		reported = append(reported, ObservedLRP{Revision: r.Revision, Instances: r.Desired, Deleting: !r.Restorable && r.Desired == 0})
		ready[r.Revision] = r.Ready > 0
	}
	current, lastStop, _ := revision.ReadRevision(app)
	return revision.SelectTargetRevision(current, lastStop, cancelled, listRestorable(reported, func(revision int64) bool { return ready[revision] }))
}
