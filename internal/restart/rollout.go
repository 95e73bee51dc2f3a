// SPDX-License-Identifier: Apache-2.0

package restart

// wanted is how many instances the current revision's LRP asks for: all, unless a deployment replaces older ones little
// by little. It never shrinks what a deployment has already started.
func (o Observed) wanted() int32 {
	if len(o.older()) == 0 || o.App.Rollout.Cancelled {
		return o.Desired
	}
	want := min(o.Desired, o.pods(o.Target()).Ready+max(1, o.App.Rollout.MaxInFlight))
	if share := o.canary(); share > 0 {
		want = min(want, share)
	}
	if current := o.current(); current != nil {
		want = max(want, min(current.Instances, o.Desired))
	}
	return want
}

// canary is how many instances the new revision is held at; 0 if it is not.
func (o Observed) canary() int32 {
	const all = 100
	percent := o.App.Rollout.CanaryPercent
	if percent <= 0 || percent >= all || len(o.older()) == 0 {
		return 0
	}
	return max(1, (o.Desired*percent+all-1)/all)
}

// paused: the canary is complete and waits for somebody to continue.
func (o Observed) paused() bool {
	share := o.canary()
	return share > 0 && share < o.Desired && o.pods(o.Target()).Ready >= share
}

// retire is the next older LRP that has too many instances, and how many it may keep. Ready instances of the new
// revision let as many older ones go, the oldest first, so that as many as are wanted stay ready throughout.
func (o Observed) retire() (lrp LRP, keep int32, found bool) {
	needed := max(0, o.Desired-o.pods(o.Target()).Ready)
	for _, l := range o.older() {
		kept := min(l.Instances, needed)
		needed -= min(kept, o.pods(l.Revision).Ready)
		if kept < l.Instances || kept == 0 {
			lrp, keep, found = l, kept, true // The last that is found is the oldest.
		}
	}
	return lrp, keep, found
}

// replaced is what is left of every revision that a deployment runs beside: those before it, or the one that was taken back.
func (o Observed) replaced() leftover {
	return o.leftOf(func(revision int64) bool { return revision >= o.App.LastStop && revision != o.Target() })
}

// yielding: a deployment has all its instances, and what it replaced still ends. It is waited for as long as for a drain,
// unless revisions may overlap.
func (o Observed) yielding() bool {
	left := o.replaced()
	return !o.App.Overlap && !left.none() && !o.expired(left)
}
