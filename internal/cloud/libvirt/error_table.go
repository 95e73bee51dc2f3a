// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies the errors of a daemon. OPERATION_TIMEOUT, OPERATION_ABORTED and RESOURCE_BUSY concern
// domains that another client is changing. A guest agent does not respond while the guest starts or is busy. A
// hypervisor reports a host without memory only in the message:
// https://libvirt.org/html/libvirt-virterror.html
func errorTable() errortable.Table {
	return errortable.Table{
		{Codes: []string{"AUTH_FAILED", "AUTH_CANCELLED", "AUTH_UNAVAILABLE"}, Class: actuator.CredentialsInvalid},
		{Codes: []string{"OPERATION_DENIED", "ACCESS_DENIED"}, Class: actuator.PermissionDenied},
		{Codes: []string{"NO_DOMAIN"}, Class: actuator.NotFound},
		{Codes: []string{
			"OPERATION_INVALID", "OPERATION_TIMEOUT", "OPERATION_ABORTED", "AGENT_UNRESPONSIVE", "RESOURCE_BUSY",
		}, Class: actuator.WrongState},
		{Codes: []string{"NO_MEMORY"}, Class: actuator.NoCapacity},
		{Phrases: []string{"cannot allocate memory"}, Class: actuator.NoCapacity},
	}
}

// nameOfCode returns libvirt's name of an error code without the prefix VIR_ERR_, or the number of an unknown code.
func nameOfCode(code uint32) string {
	names := map[uint32]string{
		codeNoMemory: "NO_MEMORY", codeOperationDenied: "OPERATION_DENIED", codeNoDomain: "NO_DOMAIN", codeAuthFailed: "AUTH_FAILED",
		codeOperationInvalid: "OPERATION_INVALID", codeOperationTimeout: "OPERATION_TIMEOUT", codeOperationAborted: "OPERATION_ABORTED",
		codeAuthCancelled: "AUTH_CANCELLED", codeAgentUnresponsive: "AGENT_UNRESPONSIVE", codeResourceBusy: "RESOURCE_BUSY",
		codeAccessDenied: "ACCESS_DENIED", codeAuthUnavailable: "AUTH_UNAVAILABLE",
	}
	if name := names[code]; name != "" {
		return name
	}
	return fmt.Sprint(code)
}
