// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.RunWithStatuses(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.CredentialsInvalid: {
			{Code: "SubscriptionNotFound", Status: 404},
			{Code: "InvalidSubscriptionId", Status: 400},
			{Code: "InvalidAuthenticationTokenTenant", Status: 401},
			{Code: "ExpiredAuthenticationToken", Status: 401},
		},
		actuator.PermissionDenied: {
			{Code: "AuthorizationFailed", Status: 403},
			{Code: "LinkedAuthorizationFailed", Status: 403},
			{Code: "RequestDisallowedByPolicy", Status: 403},
		},
		actuator.NotFound: {
			{Code: "ResourceNotFound", Status: 404},
			{Code: "ResourceGroupNotFound", Status: 404},
			{Code: "ParentResourceNotFound", Status: 404},
		},
		actuator.WrongState: {
			{Code: "AnotherOperationInProgress", Status: 409},
			{Code: "OperationPreempted", Status: 409},
			{Code: "RetryableErrorDueToAnotherOperation", Status: 409},
			{Code: "Conflict", Status: 409},
			{Code: "OperationNotAllowed", Status: 409, Message: "Operation is not allowed on VM 'a' since the VM is marked for deletion."},
		},
		actuator.Throttled: {
			{Code: "TooManyRequests", Status: 429},
			{Code: "SubscriptionRequestsThrottled", Status: 429},
			{Code: "OperationNotAllowed", Status: 429},
		},
		actuator.Unreachable: {
			{Code: "InternalServerError", Status: 500},
			{Code: "ServiceUnavailable", Status: 503},
		},
		actuator.Other: {
			{Code: "ScopeLocked", Status: 409},
			{Code: "ResourceGroupBeingDeleted", Status: 409},
			{Code: "ReadOnlyDisabledSubscription", Status: 409},
			{Code: "MissingSubscriptionRegistration", Status: 409},
			{Code: "SubscriptionNotRegistered", Status: 409},
			{Code: "NoRegisteredProviderFound", Status: 409},
			{Code: "OperationNotAllowed", Status: 409, Message: "This operation is not supported for a VM with an ephemeral OS disk."},
			{Code: "Conflict", Status: 409, Message: "The VM has an Ephemeral OS disk."},
			{Code: "BadRequest", Status: 400},
		},
		actuator.NoCapacity: {
			{Code: "AllocationFailed", Status: 409},
			{Code: "ZonalAllocationFailed", Status: 409},
			{Code: "OverconstrainedAllocationRequest", Status: 409},
			{Code: "OverconstrainedZonalAllocationRequest", Status: 409},
			{Code: "QuotaExceeded", Status: 409},
			{Code: "SkuNotAvailable", Status: 409},
			{Code: "SpotQuotaExceeded", Status: 409},
			{Code: "NotAvailableForSubscription", Status: 409},
			{Code: "OperationNotAllowed", Status: 409, Message: "Operation could not be completed as it results in exceeding approved Total Regional Cores quota."},
			{Code: "OperationNotAllowed", Status: 400, Message: "Operation could not be completed as it results in exceeding approved standardDSv3Family Cores quota."},
			{Code: "Conflict", Status: 409, Message: "It results in exceeding the approved cores quota."},
		},
	})
}
