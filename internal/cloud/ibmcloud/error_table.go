// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies the codes of refusals, and the reasons why an instance did not start, which have no status.
// An instance that cannot start in its placement group lacks capacity there:
// https://cloud.ibm.com/docs/vpc?topic=vpc-instance-status-messages
func errorTable() errortable.Table {
	table := append(errortable.Table{
		{Codes: []string{"*capacity*", "*quota*", "cannot_start_placement_group"}, Class: actuator.NoCapacity},
	}, errortable.ByStatus()...)
	return append(table, errortable.Row{Codes: []string{"*_status*", "*_state*"}, Class: actuator.WrongState})
}
