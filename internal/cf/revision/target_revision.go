// SPDX-License-Identifier: Apache-2.0

package revision

// SelectTargetRevision returns the revision of an app that should run: the current one, or the newest earlier one that still exists if
// the deployment of the current one was cancelled. existing are the revisions that still have something to come back to.
func SelectTargetRevision(current, lastStop int64, cancelled bool, existing []int64) int64 {
	if !cancelled {
		return current
	}
	found, running := false, current
	for _, revision := range existing {
		// A stop ends every revision before it for good, so a cancelled deployment cannot bring one of those back.
		if revision >= lastStop && revision < current && (!found || revision > running) {
			found, running = true, revision
		}
	}
	return running
}
