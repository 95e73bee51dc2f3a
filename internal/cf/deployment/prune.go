// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"slices"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// maxFinished is the number of finished deployments that an app keeps, which is also the number of revisions that it
// records.
const maxFinished = 20

// planPrune returns a plan that keeps the maxFinished newest finished deployments of the app, and deletes the others.
func planPrune(o Observed) Plan {
	finished := slices.Clone(o.Finished)
	slices.SortFunc(finished, func(a, b torporv1alpha1.CFDeployment) int { return revision.CompareByAge(&a, &b) })
	p := Plan{Why: "over", Expired: finished[:max(0, len(finished)-maxFinished)]}
	if len(p.Expired) > 0 {
		p.Do = DeleteExpired
	}
	return p
}
