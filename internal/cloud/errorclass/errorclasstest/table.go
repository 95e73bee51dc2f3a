// SPDX-License-Identifier: Apache-2.0

// Package errorclasstest compares a table of errors with examples.
package errorclasstest

import (
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
