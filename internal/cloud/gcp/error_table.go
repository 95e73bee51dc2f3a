// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// errorTable classifies the reasons of refusals, and the codes of failed orders, which have no status:
// https://cloud.google.com/compute/docs/reference/rest/v1/errors
// https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability
func errorTable() errortable.Table {
	return append(errortable.Table{
		{Codes: []string{
			"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "RATE_LIMIT_EXCEEDED", "concurrentLimitExceeded",
		}, Class: actuator.Throttled},
		{Codes: []string{
			"quotaExceeded", "QUOTA_EXCEEDED", "ZONE_RESOURCE_POOL_EXHAUSTED*", "REGION_RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED",
			"GPU_STOCKOUT", "stockout", "insufficientCapacity",
		}, Class: actuator.NoCapacity},
		{Codes: []string{
			"resourceNotReady", "RESOURCE_NOT_READY", "resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
			"conditionNotMet", "CONDITION_NOT_MET", "resourceOperationRateExceeded", "RESOURCE_OPERATION_RATE_EXCEEDED",
		}, Class: actuator.WrongState},
		{Codes: []string{"RESOURCE_NOT_FOUND"}, Class: actuator.NotFound},
		{Codes: []string{"PERMISSIONS_ERROR"}, Class: actuator.PermissionDenied},
	}, errortable.ByStatus()...)
}
