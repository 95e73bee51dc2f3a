// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"fmt"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// redfishErrors classifies the responses of controllers that speak Redfish. The codes are the names of messages in
// their registries, including the registry and its version:
// https://redfish.dmtf.org/registries/
// https://servermanagementportal.ext.hpe.com/docs/redfishservices/ilos/ilo6/
func redfishErrors() errortable.Table {
	return append(errortable.Table{
		{Codes: []string{"*.InvalidOperationForSystemState", "*.ResourceInUse", "*.ResourceInStandby"}, Class: actuator.WrongState},
		{Codes: []string{"*.SessionLimitExceeded"}, Class: actuator.Throttled},
		{Codes: []string{"*.PasswordChangeRequired"}, Class: actuator.CredentialsInvalid},
		{Codes: []string{"*.ActionNotSupported"}, Class: actuator.Other},
	}, errortable.ByStatus()...)
}

// ipmiErrors classifies completion codes (IPMI 2.0, table 5-2).
func ipmiErrors() errortable.Table {
	return errortable.Table{
		{Codes: codeTexts(codeBusy, codeOutOfSpace), Class: actuator.Throttled},
		{Codes: codeTexts(codeDenied), Class: actuator.PermissionDenied},
		{Codes: codeTexts(codeDuplicate, codeUpdating, codeInitializing, codeNotNow), Class: actuator.WrongState},
		{Codes: codeTexts(codeTimeout, codeNoResponse, codeNoDestination, codeUnspecified), Class: actuator.Unreachable},
	}
}

// codeTexts returns completion codes as the specification writes them.
func codeTexts(codes ...byte) []string {
	texts := make([]string, 0, len(codes))
	for _, code := range codes {
		texts = append(texts, fmt.Sprintf("0x%02x", code))
	}
	return texts
}
