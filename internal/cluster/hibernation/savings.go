// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// SavedRate returns the number of machines that a hibernation saves. Each recorded node counts as one machine, from the
// time at which all machines were observed as stopped until they are started. A repair starts machines that were
// switched off outside Torpor, and saves nothing.
func SavedRate(r *hivev1.HibernationRecord) savings.Rate {
	if r == nil || r.Repair || r.AsleepAt == nil || r.ResumeStartedAt != nil {
		return savings.Rate{}
	}
	return savings.Rate{Machines: int64(len(r.Nodes))}
}
