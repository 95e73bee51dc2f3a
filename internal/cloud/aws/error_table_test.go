// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.Run(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.CredentialsInvalid: {
			{Code: "AuthFailure", Status: 400},
			{Code: "ExpiredToken", Status: 400},
			{Code: "ExpiredTokenException", Status: 400},
			{Code: "IncompleteSignature", Status: 400},
			{Code: "InvalidAccessKeyId", Status: 400},
			{Code: "InvalidClientTokenId", Status: 400},
			{Code: "InvalidToken", Status: 400},
			{Code: "MissingAuthenticationToken", Status: 400},
			{Code: "MissingAuthenticationTokenException", Status: 400},
			{Code: "SignatureDoesNotMatch", Status: 400},
			{Code: "InvalidSignatureException", Status: 400},
			{Code: "UnrecognizedClientException", Status: 400},
			{Code: "RequestExpired", Status: 400},
			{Code: "InvalidSecurity", Status: 400},
			{Code: "InvalidIdentityToken", Status: 400},
			{Code: "IDPRejectedClaim", Status: 400},
		},
		actuator.PermissionDenied: {
			{Code: "UnauthorizedOperation", Status: 403},
			{Code: "AccessDenied", Status: 403},
			{Code: "AccessDeniedException", Status: 403},
			{Code: "Blocked", Status: 403},
			{Code: "OptInRequired", Status: 403},
			{Code: "PendingVerification", Status: 403},
			{Code: "NotAuthorized", Status: 403},
		},
		actuator.Throttled: {
			{Code: "RequestLimitExceeded", Status: 503},
			{Code: "BandwidthLimitExceeded", Status: 503},
			{Code: "EC2ThrottledException", Status: 503},
			{Code: "RequestThrottled", Status: 503},
			{Code: "RequestThrottledException", Status: 503},
			{Code: "SlowDown", Status: 503},
			{Code: "TooManyRequestsException", Status: 503},
			{Code: "Throttling", Status: 503},
			{Code: "ThrottlingException", Status: 503},
			{Code: "ThrottledException", Status: 503},
			{Code: "PriorRequestNotComplete", Status: 503},
		},
		actuator.NoCapacity: {
			{Code: "InsufficientInstanceCapacity", Status: 500},
			{Code: "InsufficientCapacity", Status: 500},
			{Code: "InsufficientCapacityOnHost", Status: 500},
			{Code: "InsufficientHostCapacity", Status: 500},
			{Code: "InsufficientReservedInstanceCapacity", Status: 500},
			{Code: "InstanceLimitExceeded", Status: 500},
			{Code: "MaxSpotInstanceCountExceeded", Status: 500},
			{Code: "ReservationCapacityExceeded", Status: 500},
			{Code: "SpotMaxPriceTooLow", Status: 500},
			{Code: "VcpuLimitExceeded", Status: 500},
			{Code: "UnfulfillableCapacity", Status: 500},
		},
		actuator.WrongState: {
			{Code: "IncorrectInstanceState", Status: 500},
			{Code: "IncorrectSpotRequestState", Status: 500},
			{Code: "IncorrectState", Status: 500},
			{Code: "ResourceContention", Status: 500},
			{Code: "ScalingActivityInProgress", Status: 500},
			{Code: "ResourceInUse", Status: 500},
			{Code: "ResourceInUseException", Status: 409},
			{Code: "ServiceLinkedRoleFailure", Status: 500},
		},
		actuator.NotFound: {
			{Code: "InvalidInstanceID.NotFound", Status: 400},
			{Code: "InvalidInstanceID.Malformed", Status: 400},
			{Code: "InvalidInstanceIDs.NotFound", Status: 400},
			{Code: "ResourceNotFoundException", Status: 404},
		},
		actuator.Unreachable: {
			{Code: "InternalError", Status: 503},
			{Code: "Unavailable", Status: 503},
			{Code: "ServiceUnavailable", Status: 503},
			{Code: "InternalFailure", Status: 500},
			{Code: "IDPCommunicationError", Status: 400},
		},
		actuator.Other: {
			{Code: "UnsupportedOperation", Status: 400},
			{Code: "RegionDisabledException", Status: 403},
			{Code: "OperationNotPermitted", Status: 400},
			{Code: "Unsupported", Status: 400},
			{Code: "InvalidParameterValue", Status: 400},
			{Code: "DryRunOperation", Status: 400},
			{Code: "ValidationError", Status: 400},
			{},
		},
	})
}
