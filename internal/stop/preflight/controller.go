// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// JudgeController returns the finding that no controller stops or starts an object. gap is the reason.
func JudgeController(gap string) []Finding {
	return []Finding{NewRemark(torporv1alpha1.NoControllerFinding, gap)}
}

// JudgeMissingManager returns the finding that no manager renews the Lease any more. This is only a warning, because
// a manager without leader election may be running.
func JudgeMissingManager(lease string) []Finding {
	return []Finding{NewRemark(torporv1alpha1.NotCheckedFinding, fmt.Sprintf(
		"Expected an active manager, found that no manager has renewed the Lease %s: whether a controller acts is not known; check whether the manager runs", lease))}
}
