// SPDX-License-Identifier: Apache-2.0

package errortable_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/errortable/errortabletest"
)

func TestByStatus(t *testing.T) {
	errortabletest.Run(t, errortable.ByStatus(), map[actuator.ErrorClass][]errortable.Found{
		actuator.CredentialsInvalid: {{Status: 401}},
		actuator.PermissionDenied:   {{Status: 403}},
		actuator.NotFound:           {{Status: 404}, {Status: 410}},
		actuator.WrongState:         {{Status: 409}, {Status: 412}},
		actuator.Throttled:          {{Status: 429}, {Status: 503, HasPause: true}},
		actuator.Unreachable:        {{Status: 500}, {Status: 502}, {Status: 503}, {Status: 504}, {Status: 599}, {Status: 408}, {Status: 302}, {Status: 408, HasPause: true}},
		actuator.Other:              {{Status: 501}, {Status: 400}, {Status: 405}, {Status: 422}, {}},
	})
}

func TestPatterns(t *testing.T) {
	table := errortable.Table{
		{Codes: []string{"Exact", "Prefix*", "*suffix", "*middle*", "a*b*c"}, Class: actuator.NoCapacity},
		{Phrases: []string{"exceeding* quota"}, Operations: []string{"start"}, Class: actuator.Throttled},
	}
	errortabletest.Run(t, table, map[actuator.ErrorClass][]errortable.Found{
		actuator.NoCapacity: {{Code: "Exact"}, {Code: "Prefix"}, {Code: "Prefixed"}, {Code: "a suffix"}, {Code: "in the middle of"}, {Code: "abc"}, {Code: "a-b-c"}},
		actuator.Throttled:  {{Operation: "start", Message: "It results in Exceeding the approved Cores Quota."}},
		actuator.Other: {
			{Code: "Exactly"},
			{Code: "exact"},
			{Code: "APrefix"},
			{Code: "suffixes"},
			{Code: "ac"},
			{Code: "acb"},
			{},
			{Operation: "start", Message: "a quota, exceeding"},
			{Operation: "stop", Message: "exceeding the quota"},
		},
	})
}

func TestDescribe(t *testing.T) {
	table := errortable.Table{
		{Codes: []string{"A", "B*"}, Class: actuator.NoCapacity},
		{Lowest: 409, Highest: 409, Phrases: []string{"in use"}, Operations: []string{"start"}, Class: actuator.WrongState},
		{Lowest: 503, Highest: 503, HasPause: true, Class: actuator.Throttled},
		errortable.StatusFrom(500, actuator.Unreachable),
		errortable.Status(409, 412, actuator.Other),
		errortable.Status(1, 399, actuator.Unreachable),
	}
	want := []actuator.ErrorDescription{
		{Errors: "`A`, `B*`", Class: actuator.NoCapacity},
		{Errors: "status 409 Conflict with `in use` in the message of `start`", Class: actuator.WrongState},
		{Errors: "status 503 Service Unavailable with `Retry-After`", Class: actuator.Throttled},
		{Errors: "status 500 and above", Class: actuator.Unreachable},
		{Errors: "status 409 to 412", Class: actuator.Other},
		{Errors: "status below 400", Class: actuator.Unreachable},
		{Errors: "any other error", Class: actuator.Other},
	}
	if diff := cmp.Diff(want, table.Describe()); diff != "" {
		t.Errorf("descriptions (-want +found):\n%s", diff)
	}
}
