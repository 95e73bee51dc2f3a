// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"slices"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// maxFinished is how many finished deployments an app keeps; it remembers as many revisions.
const maxFinished = 20

// planPrune deletes the oldest finished deployments of the app.
func planPrune(o Observed) Plan {
	finished := slices.Clone(o.Finished)
	slices.SortFunc(finished, func(a, b torporv1alpha1.CFDeployment) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	p := Plan{Why: "over", Expired: finished[:max(0, len(finished)-maxFinished)]}
	if len(p.Expired) > 0 {
		p.Do = DeleteExpired
	}
	return p
}
