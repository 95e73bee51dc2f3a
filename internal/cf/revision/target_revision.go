// SPDX-License-Identifier: Apache-2.0

package revision

// ExistingRevision is a revision with an LRP that a cancelled deployment can restore.
type ExistingRevision struct {
	Number int64
	// Serves is true if at least one instance is ready.
	Serves bool
}

// SelectTargetRevision returns the revision of an app that should run. That is the current revision, unless its
// deployment was cancelled. Then it is the newest earlier revision that serves, or the oldest one if none serves. Cloud
// Controller selects in the same way.
func SelectTargetRevision(current, lastStop int64, cancelled bool, existing []ExistingRevision) int64 {
	if !cancelled {
		return current
	}
	target := ExistingRevision{Number: current}
	for _, r := range existing {
		// A stop ends every earlier revision permanently, so a cancelled deployment cannot restore any of them.
		if r.Number < lastStop || r.Number >= current {
			continue
		}
		if r.Serves && (!target.Serves || r.Number > target.Number) || !r.Serves && !target.Serves && r.Number < target.Number {
			target = r
		}
	}
	return target.Number
}
