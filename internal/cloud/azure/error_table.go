// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"net/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies the errors of Azure. Azure uses the code OperationNotAllowed for an exhausted quota, for an
// operation that a machine never supports, and for an operation in progress. The phrases contain spaces, so no
// resource name can contain one of them:
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota
func errorTable() errortable.Table {
	return append(errortable.Table{
		{Codes: []string{
			"AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "OverconstrainedZonalAllocationRequest",
			"QuotaExceeded", "SkuNotAvailable", "NotAvailableForSubscription", "SpotQuotaExceeded",
		}, Class: actuator.NoCapacity},
		{Codes: []string{"SubscriptionNotFound", "InvalidSubscriptionId"}, Class: actuator.CredentialsInvalid},
		{Codes: []string{
			"ScopeLocked", "ResourceGroupBeingDeleted", "ReadOnlyDisabledSubscription", "MissingSubscriptionRegistration",
			"SubscriptionNotRegistered", "NoRegisteredProviderFound",
		}, Class: actuator.Other},
		{Codes: []string{"OperationNotAllowed"}, Phrases: []string{"exceeding* quota"}, Class: actuator.NoCapacity},
		{
			Lowest: http.StatusConflict, Highest: http.StatusPreconditionFailed, Phrases: []string{"exceeding* quota"},
			Class: actuator.NoCapacity,
		},
		{
			Lowest: http.StatusConflict, Highest: http.StatusPreconditionFailed, Phrases: []string{"not supported", "ephemeral os"},
			Class: actuator.Other,
		},
	}, errortable.ByStatus()...)
}
