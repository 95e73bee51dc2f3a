// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"net/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies the error codes of EC2, EC2 Auto Scaling, EKS and STS:
// https://docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/CommonErrors.html
// https://docs.aws.amazon.com/eks/latest/APIReference/CommonErrors.html
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
func errorTable() errortable.Table {
	return errortable.Table{
		{Codes: []string{
			"AuthFailure", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidAccessKeyId",
			"InvalidClientTokenId", "InvalidToken", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
			"SignatureDoesNotMatch", "InvalidSignatureException", "UnrecognizedClientException",
			"RequestExpired", "InvalidSecurity", "InvalidIdentityToken", "IDPRejectedClaim",
		}, Class: actuator.CredentialsInvalid},
		{Codes: []string{
			"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "Blocked", "OptInRequired",
			"PendingVerification", "NotAuthorized",
		}, Class: actuator.PermissionDenied},
		{Codes: []string{
			"RequestLimitExceeded", "BandwidthLimitExceeded", "EC2ThrottledException", "RequestThrottled",
			"RequestThrottledException", "SlowDown", "TooManyRequestsException", "PriorRequestNotComplete", "Throttl*",
		}, Class: actuator.Throttled},
		{Codes: []string{
			"InsufficientInstanceCapacity", "InsufficientCapacity", "InsufficientCapacityOnHost", "InsufficientHostCapacity",
			"InsufficientReservedInstanceCapacity", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded",
			"ReservationCapacityExceeded", "SpotMaxPriceTooLow", "UnfulfillableCapacity", "VcpuLimitExceeded",
		}, Class: actuator.NoCapacity},
		{Codes: []string{
			"IncorrectInstanceState", "IncorrectSpotRequestState", "IncorrectState", "ResourceContention", "ResourceInUse",
			"ResourceInUseException", "ScalingActivityInProgress", "ServiceLinkedRoleFailure",
		}, Class: actuator.WrongState},
		{Codes: []string{"InvalidInstanceID*", "ResourceNotFoundException"}, Class: actuator.NotFound},
		{Codes: []string{"IDPCommunicationError"}, Class: actuator.Unreachable},
		errortable.StatusFrom(http.StatusInternalServerError, actuator.Unreachable),
	}
}
