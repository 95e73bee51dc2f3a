// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies responses by their status, because OpenStack has no error codes. The first two rows also match
// the message: Nova uses 403 for an exhausted quota and for missing rights, and 409 for a wrong state and for a locked
// server, which only a user unlocks. With Keystone's unified limits, the message about the quota differs:
// https://docs.openstack.org/api-ref/compute/#unshelve-restore-shelved-server-unshelve-action
// https://docs.openstack.org/nova/latest/admin/unified-limits.html
func errorTable() errortable.Table {
	return append(errortable.Table{
		{
			Lowest: http.StatusForbidden, Highest: http.StatusForbidden, Phrases: []string{"quota exceeded", "is over a limit for"},
			Operations: []string{start}, Class: actuator.NoCapacity,
		},
		{Lowest: http.StatusConflict, Highest: http.StatusConflict, Phrases: []string{" is locked"}, Class: actuator.Other},
		errortable.Status(http.StatusRequestEntityTooLarge, http.StatusRequestEntityTooLarge, actuator.Throttled), // Old versions of nova.
	}, errortable.ByStatus()...)
}
