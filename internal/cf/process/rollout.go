// SPDX-License-Identifier: Apache-2.0

package process

// wantedInstances returns the number of instances for the target revision's LRP. It is the desired number, unless a
// deployment replaces older instances step by step.
func (o Observed) wantedInstances() int32 {
	if len(o.olderLRPs()) == 0 || o.App.Rollout.Cancelled {
		return o.Desired
	}
	// MaxInFlight is limited first, because a user may set it to the maximum of its type, and the sum would overflow.
	want := min(o.Desired, o.podsOf(o.TargetRevision()).Ready+min(o.Desired, max(1, o.App.Rollout.MaxInFlight)))
	if share := o.canaryInstances(); share > 0 {
		want = min(want, share)
	}
	if current := o.targetLRP(); current != nil {
		// An instance that becomes unready must not reduce the number of instances that the deployment has already
		// started.
		want = max(want, min(current.Instances, o.Desired))
	}
	return want
}

// canaryInstances returns the number of new instances at which a canary pauses, or 0 if it does not pause. As in Cloud
// Controller, even a step of 100 % pauses next to one older instance, so a process with one instance can have a canary.
// The rounding is also the same as in Cloud Controller.
func (o Observed) canaryInstances() int32 {
	const all = 100
	percent, ofOne := o.App.Rollout.CanaryPercent, o.App.Rollout.CanaryOfOne
	if percent <= 0 && !ofOne || o.Desired == 0 || o.App.Rollout.Cancelled || len(o.olderLRPs()) == 0 {
		return 0
	}
	if ofOne {
		return 1
	}
	return max(1, (o.Desired*min(percent, all)+all/2)/all)
}

// isCanaryComplete reports whether a canary has reached its step and waits until the user continues it.
func (o Observed) isCanaryComplete() bool {
	share := o.canaryInstances()
	return share > 0 && o.podsOf(o.TargetRevision()).Ready >= share
}

// nextToRetire returns the next LRP, other than the target's, with too many or no instances, and the number of
// instances that it keeps. The oldest revisions are retired first. The revision of a cancelled deployment is retired
// even before them, because a full quota might otherwise prevent the restored revision from growing.
//
// Invariant: let d be the desired instances, and n the ready instances that the LRPs of all revisions keep. After a
// retirement, n is at least the smaller of d and n before it, so a deployment never removes a ready instance that is
// needed. The model test TestEveryStateIsSafeAndConverges checks this.
func (o Observed) nextToRetire() (lrp ObservedLRP, keep int32, found bool) {
	needed := max(0, o.Desired-o.targetStaying())
	if o.canaryInstances() > 0 {
		needed = max(needed, 1)
	}
	for _, l := range o.LRPs {
		if l.Revision > o.TargetRevision() && !l.Deleting && l.Instances > needed {
			return l, needed, true
		}
	}
	for _, l := range o.olderLRPs() {
		kept := min(l.Instances, needed)
		needed -= min(kept, o.podsOf(l.Revision).Ready)
		if kept < l.Instances || kept == 0 {
			lrp, keep, found = l, kept, true // The last match has the oldest revision.
		}
	}
	return lrp, keep, found
}

// replacedRemains returns the remaining objects of the revisions that a deployment replaces, or of the cancelled
// revision.
func (o Observed) replacedRemains() remainingObjects {
	return o.remainsOf(func(revision int64) bool { return revision >= o.App.LastStop && revision != o.TargetRevision() })
}

// waitsForReplaced reports whether a deployment must wait until replaced instances have terminated. The wait ends at
// the drain timeout. There is no wait if revisions may overlap.
func (o Observed) waitsForReplaced() bool {
	left := o.replacedRemains()
	return !o.App.Overlap && !left.isEmpty() && !o.isOverdue(left)
}
