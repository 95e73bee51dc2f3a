// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestRedfishErrors(t *testing.T) {
	errortabletest.RunWithStatuses(t, redfishErrors(), map[actuator.ErrorClass][]errortable.Found{
		actuator.CredentialsInvalid: {
			{Code: "Base.1.8.PasswordChangeRequired", Status: 403},
			{Code: "Base.1.8.NoValidSession", Status: 401},
		},
		actuator.WrongState: {
			{Code: "iLO.2.15.InvalidOperationForSystemState", Status: 400},
			{Code: "Base.1.8.ResourceInUse", Status: 503},
			{Code: "Base.1.8.ResourceInStandby", Status: 503},
		},
		actuator.Throttled: {
			{Code: "Base.1.8.SessionLimitExceeded", Status: 503},
		},
		actuator.Other: {
			{Code: "Base.1.8.ActionNotSupported", Status: 500},
			{Code: "Base.1.8.ActionParameterNotSupported", Status: 400},
		},
	})
}

func TestIPMIErrors(t *testing.T) {
	errortabletest.Run(t, ipmiErrors(), map[actuator.ErrorClass][]errortable.Found{
		actuator.Throttled: {
			{Code: "0xc0"},
			{Code: "0xc4"},
		},
		actuator.PermissionDenied: {
			{Code: "0xd4"},
		},
		actuator.WrongState: {
			{Code: "0xcf"},
			{Code: "0xd1"},
			{Code: "0xd2"},
			{Code: "0xd5"},
		},
		actuator.Unreachable: {
			{Code: "0xc3"},
			{Code: "0xce"},
			{Code: "0xd3"},
			{Code: "0xff"},
		},
		actuator.Other: {
			{Code: "0xc1"},
			{Code: "0xcc"},
			{Code: "0xd6"},
		},
	})
}
