// SPDX-License-Identifier: Apache-2.0

package revision

// ExistingRevision is a revision that has something to come back to.
type ExistingRevision struct {
	Number int64
	// Serves says that at least one instance is ready.
	Serves bool
}

// SelectTargetRevision returns the revision of an app that should run: the current one or, if its deployment was cancelled, the
// newest earlier one that serves; the oldest if none does. Cloud Controller chooses in the same way.
func SelectTargetRevision(current, lastStop int64, cancelled bool, existing []ExistingRevision) int64 {
	if !cancelled {
		return current
	}
	target := ExistingRevision{Number: current}
	for _, r := range existing {
		// A stop ends every revision before it for good, so a cancelled deployment cannot bring one of those back.
		if r.Number < lastStop || r.Number >= current {
			continue
		}
		if r.Serves && (!target.Serves || r.Number > target.Number) || !r.Serves && !target.Serves && r.Number < target.Number {
			target = r
		}
	}
	return target.Number
}
