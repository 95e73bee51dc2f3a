// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.RunWithStatuses(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.PermissionDenied: {
			{Operation: start, Status: 403, Message: "Policy doesn't allow os_compute_api:servers:start to be performed."},
			{Operation: stop, Status: 403, Message: "Quota exceeded"},
		},
		actuator.Throttled: {
			{Status: 413},
			{Operation: list, Status: 503, HasPause: true},
		},
		actuator.Other: {
			{Operation: start, Status: 409, Message: "Instance 5d2b is locked"},
			{Operation: start, Status: 501, Message: "Unable to resume, functionality not implemented"},
		},
		actuator.NoCapacity: {
			{Operation: start, Status: 403, Message: "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores"},
			{Operation: start, Status: 403, Message: "Project 5d2b is over a limit for [Resource class:VCPU is over limit of 20 due to current usage 20 and delta 4]"},
		},
	})
}
