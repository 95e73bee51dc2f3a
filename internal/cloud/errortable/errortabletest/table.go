// SPDX-License-Identifier: Apache-2.0

// Package errortabletest tests tables of errors with examples.
package errortabletest

import (
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
)

// Run expects each example to have its class. It also expects, for each code and phrase of each row, an example that
// matches this code or phrase and no earlier row.
func Run(t *testing.T, table errortable.Table, examples map[actuator.ErrorClass][]errortable.Found) {
	t.Helper()
	matched := make([][]errortable.Found, len(table))
	for class, all := range examples {
		for _, found := range all {
			if is := table.ClassOf(found); is != class {
				t.Errorf("%+v: expected the class %q, found %q", found, class, is)
			}
			if i := table.IndexOf(found); i >= 0 {
				matched[i] = append(matched[i], found)
			}
		}
	}
	for i, row := range table {
		for _, alternative := range alternativesOf(row) {
			isMatch := func(found errortable.Found) bool { return errortable.Table{alternative}.IndexOf(found) == 0 }
			if !slices.ContainsFunc(matched[i], isMatch) {
				t.Errorf("row %d: expected an example of %+v, found none", i, alternative)
			}
		}
	}
}

// alternativesOf returns row itself, and copies of it that have only one of its codes or one of its phrases.
func alternativesOf(row errortable.Row) []errortable.Row {
	alternatives := []errortable.Row{row}
	for _, code := range row.Codes {
		one := row
		one.Codes = []string{code}
		alternatives = append(alternatives, one)
	}
	for _, phrase := range row.Phrases {
		one := row
		one.Phrases = []string{phrase}
		alternatives = append(alternatives, one)
	}
	return alternatives
}

// RunWithStatuses is like Run for a table that ends with the rows of errortable.ByStatus. It adds examples of statuses
// for these rows.
func RunWithStatuses(t *testing.T, table errortable.Table, examples map[actuator.ErrorClass][]errortable.Found) {
	t.Helper()
	all := maps.Clone(examples)
	for class, statuses := range map[actuator.ErrorClass][]errortable.Found{
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
