// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"slices"
	"strings"
	"testing"
)

// TestReadOnlyIsReadBeforeTheExecutedSet checks the order of columns in one statement, which MySQL evaluates from left
// to right. A transaction that is committed while the statement runs must not be missing from the executed set of a
// server that reports read-only.
func TestReadOnlyIsReadBeforeTheExecutedSet(t *testing.T) {
	statement := buildReadStatement([]string{"rpl_semi_sync_source_enabled"})
	var at []int
	for _, part := range []string{isPendingAct, "@@global.super_read_only", `\_wait\_sessions`, "@@global.gtid_owned", "@@global.gtid_executed", "@@global.gtid_purged"} {
		if strings.Count(statement, part) != 1 {
			t.Fatalf("expected %s once, found %d", part, strings.Count(statement, part))
		}
		at = append(at, strings.Index(statement, part))
	}
	if !slices.IsSorted(at) {
		t.Errorf("expected the parts in their order, found them at %v in %s", at, statement)
	}
}
