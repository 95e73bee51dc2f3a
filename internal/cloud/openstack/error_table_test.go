// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errorclass"
	"github.com/torpor-dev/torpor/internal/cloud/errorclass/errorclasstest"
)

func TestErrorTable(t *testing.T) {
	errorclasstest.Run(t, errorTable(), map[actuator.ErrorClass][]errorclass.Found{
		actuator.CredentialsInvalid: {
			{Status: 401},
		},
		actuator.PermissionDenied: {
			{Operation: start, Status: 403, Message: "Policy doesn't allow os_compute_api:servers:start to be performed."},
			{Operation: stop, Status: 403, Message: "Quota exceeded"},
			{Status: 403},
		},
		actuator.NotFound: {
			{Status: 404},
			{Status: 410},
		},
		actuator.WrongState: {
			{Status: 409},
			{Status: 412},
		},
		actuator.Throttled: {
			{Status: 413},
			{Operation: list, Status: 503, HasPause: true},
			{Status: 429},
			{Status: 503, HasPause: true},
		},
		actuator.Unreachable: {
			{Status: 500},
			{Status: 503},
			{Status: 408},
			{Status: 302},
		},
		actuator.Other: {
			{Operation: start, Status: 409, Message: "Instance 5d2b is locked"},
			{Operation: start, Status: 501, Message: "Unable to resume, functionality not implemented"},
			{Status: 501},
			{Status: 400},
		},
		actuator.NoCapacity: {
			{Operation: start, Status: 403, Message: "Quota exceeded for cores: Requested 4, but already used 20 of 20 cores"},
		},
	})
}
