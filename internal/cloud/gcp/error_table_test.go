// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestErrorTable(t *testing.T) {
	errortabletest.RunWithStatuses(t, errorTable(), map[actuator.ErrorClass][]errortable.Found{
		actuator.PermissionDenied: {
			{Code: "PERMISSIONS_ERROR"},
			{Code: "accessNotConfigured", Status: 403},
			{Code: "forbidden", Status: 403},
		},
		actuator.NotFound: {
			{Code: "RESOURCE_NOT_FOUND"},
			{Code: "PROJECT_NOT_FOUND", Status: 404},
		},
		actuator.WrongState: {
			{Code: "resourceNotReady", Status: 400},
			{Code: "resourceInUseByAnotherResource", Status: 400},
			{Code: "RESOURCE_NOT_READY"},
			{Code: "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"},
			{Code: "RESOURCE_OPERATION_RATE_EXCEEDED"},
			{Code: "CONDITION_NOT_MET"},
			{Code: "conditionNotMet", Status: 412},
			{Code: "resourceOperationRateExceeded", Status: 403},
		},
		actuator.Throttled: {
			{Code: "rateLimitExceeded", Status: 403},
			{Code: "userRateLimitExceeded", Status: 403},
			{Code: "dailyLimitExceeded", Status: 403},
			{Code: "RATE_LIMIT_EXCEEDED", Status: 403},
			{Code: "concurrentLimitExceeded", Status: 403},
		},
		actuator.Unreachable: {
			{Code: "backendError", Status: 503},
			{Code: "internalError", Status: 500},
			{Code: "SERVICE_UNAVAILABLE_FOR_LOCATION", Status: 500},
		},
		actuator.Other: {
			{Code: "UNSUPPORTED_OPERATION"},
			{Code: "INTERNAL_ERROR"},
			{Code: "INVALID_FIELD_VALUE", Status: 400},
		},
		actuator.NoCapacity: {
			{Code: "quotaExceeded", Status: 403},
			{Code: "QUOTA_EXCEEDED", Status: 403},
			{Code: "ZONE_RESOURCE_POOL_EXHAUSTED"},
			{Code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"},
			{Code: "REGION_RESOURCE_POOL_EXHAUSTED"},
			{Code: "RESOURCE_POOL_EXHAUSTED"},
			{Code: "GPU_STOCKOUT"},
			{Code: "stockout"},
			{Code: "insufficientCapacity", Status: 503},
		},
	})
}
