// SPDX-License-Identifier: Apache-2.0

package process

// wantedInstances returns how many instances the target revision's LRP asks for: all, unless a deployment replaces older ones
// little by little.
func (o Observed) wantedInstances() int32 {
	if len(o.olderLRPs()) == 0 || o.App.Rollout.Cancelled {
		return o.Desired
	}
	// What may be in flight is bounded first, because people may write as many as there are numbers.
	want := min(o.Desired, o.podsOf(o.TargetRevision()).Ready+min(o.Desired, max(1, o.App.Rollout.MaxInFlight)))
	if share := o.canaryInstances(); share > 0 {
		want = min(want, share)
	}
	if current := o.targetLRP(); current != nil {
		// An instance that stops being ready must not shrink what the deployment has already started.
		want = max(want, min(current.Instances, o.Desired))
	}
	return want
}

// canaryInstances returns how many instances the new revision is held at; 0 if it is not. At all of them it still waits beside
// one older instance, as in Cloud Controller, so that a canary of one instance is one. It rounds as Cloud Controller does.
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

// isCanaryComplete reports whether a canary has its instances and waits to be continued.
func (o Observed) isCanaryComplete() bool {
	share := o.canaryInstances()
	return share > 0 && o.podsOf(o.TargetRevision()).Ready >= share
}

// nextToRetire returns the next LRP beside the target's that has too many instances, and how many it may keep. Ready instances of the
// target revision let as many others go, the oldest first, so that as many as are wanted stay ready throughout. Those of a cancelled
// deployment go before all: where a quota leaves no room, what comes back could not grow beside them.
func (o Observed) nextToRetire() (lrp ObservedLRP, keep int32, found bool) {
	needed := max(0, o.Desired-o.podsOf(o.TargetRevision()).Ready)
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
			lrp, keep, found = l, kept, true // The last that is found is the oldest.
		}
	}
	return lrp, keep, found
}

// replacedRemains returns what is left of the revisions beside which a deployment runs: those before it, or the cancelled one.
func (o Observed) replacedRemains() remainingObjects {
	return o.remainsOf(func(revision int64) bool { return revision >= o.App.LastStop && revision != o.TargetRevision() })
}

// waitsForReplaced reports whether what a deployment has replaced still ends. It is waited for as long as for a drain, unless
// revisions may overlap.
func (o Observed) waitsForReplaced() bool {
	left := o.replacedRemains()
	return !o.App.Overlap && !left.isEmpty() && !o.isOverdue(left)
}
