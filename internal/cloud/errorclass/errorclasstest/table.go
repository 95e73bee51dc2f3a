// SPDX-License-Identifier: Apache-2.0

// Package errorclasstest compares a table of errors with examples.
package errorclasstest

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errorclass"
)

// Run expects each example to have its class, and each row to be the first match of an example.
func Run(t *testing.T, table errorclass.Table, examples map[actuator.ErrorClass][]errorclass.Found) {
	t.Helper()
	isMatched := make([]bool, len(table))
	for class, all := range examples {
		for _, found := range all {
			if is := table.ClassOf(found); is != class {
				t.Errorf("%+v: expected the class %q, found %q", found, class, is)
			}
			if i := table.IndexOf(found); i >= 0 {
				isMatched[i] = true
			}
		}
	}
	for i, isRow := range isMatched {
		if !isRow {
			t.Errorf("expected an example of row %d, found none: %+v", i, table[i])
		}
	}
}

// RunWithStatuses is Run for a table that ends with the rows of errorclass.ByStatus: it adds an example of each, and of
// statuses beside them.
func RunWithStatuses(t *testing.T, table errorclass.Table, examples map[actuator.ErrorClass][]errorclass.Found) {
	t.Helper()
	all := maps.Clone(examples)
	for class, statuses := range map[actuator.ErrorClass][]errorclass.Found{
		actuator.CredentialsInvalid: {{Status: http.StatusUnauthorized}},
		actuator.PermissionDenied:   {{Status: http.StatusForbidden}},
		actuator.NotFound:           {{Status: http.StatusNotFound}, {Status: http.StatusGone}},
		actuator.WrongState:         {{Status: http.StatusConflict}, {Status: http.StatusPreconditionFailed}},
		actuator.Throttled:          {{Status: http.StatusTooManyRequests}, {Status: http.StatusServiceUnavailable, HasPause: true}},
		actuator.Unreachable: {
			{Status: http.StatusInternalServerError}, {Status: http.StatusServiceUnavailable}, {Status: http.StatusRequestTimeout}, {Status: http.StatusFound},
		},
		actuator.Other: {{Status: http.StatusNotImplemented}, {Status: http.StatusBadRequest}},
	} {
		all[class] = slices.Concat(examples[class], statuses)
	}
	Run(t, table, all)
}
