// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.RunWithStatuses(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.WrongState: {
			{Code: "instance_status_invalid", Status: 400},
			{Code: "invalid_state", Status: 400},
			{Code: "conflict", Status: 409},
		},
		actuator.Other: {
			{Code: "cannot_start"},
			{Code: "cannot_start_compute"},
			{Code: "cannot_start_ip_address"},
			{Code: "cannot_start_network"},
			{Code: "cannot_start_storage"},
			{Code: "cannot_start_reservation_expired"},
			{Code: "bad_field", Status: 400},
			{Code: "status 400", Status: 400},
		},
		actuator.NoCapacity: {
			{Code: "cannot_start_capacity"},
			{Code: "cannot_start_reservation_capacity"},
			{Code: "cannot_start_placement_group"},
			{Code: "over_quota", Status: 400},
			{Code: "over_quota", Status: 403},
		},
	})
}
