// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.Run(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.CredentialsInvalid: {
			{Code: "AUTH_FAILED"},
			{Code: "AUTH_CANCELLED"},
			{Code: "AUTH_UNAVAILABLE"},
		},
		actuator.PermissionDenied: {
			{Code: "OPERATION_DENIED"},
			{Code: "ACCESS_DENIED"},
		},
		actuator.NotFound: {
			{Code: "NO_DOMAIN"},
		},
		actuator.WrongState: {
			{Code: "OPERATION_INVALID"},
			{Code: "OPERATION_TIMEOUT"},
			{Code: "RESOURCE_BUSY"},
			{Code: "OPERATION_ABORTED"},
			{Code: "AGENT_UNRESPONSIVE"},
		},
		actuator.NoCapacity: {
			{Code: "NO_MEMORY"},
			{Code: "1", Message: "internal error: qemu unexpectedly closed the monitor: cannot set up guest memory 'pc.ram': Cannot allocate memory"},
		},
		actuator.Other: {
			{Code: "1"},
			{Code: "9"},
			{Code: "38"},
			{Code: "67"},
			{Code: "84"},
		},
	})
}

// TestCodeNames compares names with the numbers in libvirt's virterror.h.
func TestCodeNames(t *testing.T) {
	for code, want := range map[uint32]string{
		1: "1", 2: "NO_MEMORY", 29: "OPERATION_DENIED", 42: "NO_DOMAIN", 45: "AUTH_FAILED", 55: "OPERATION_INVALID", 68: "OPERATION_TIMEOUT", 78: "OPERATION_ABORTED",
		79: "AUTH_CANCELLED", 86: "AGENT_UNRESPONSIVE", 87: "RESOURCE_BUSY", 88: "ACCESS_DENIED", 94: "AUTH_UNAVAILABLE",
	} {
		if is := nameOfCode(code); is != want {
			t.Errorf("%d: expected %s, found %s", code, want, is)
		}
	}
}
