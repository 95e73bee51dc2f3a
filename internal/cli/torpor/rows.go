// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// stopRow is a row of the tables: one switch of an object, and its schedule.
type stopRow struct {
	kinds.Row
	// Schedule lists the next stops and starts of the object by Slumbers.
	Schedule []scheduledTransition `json:"schedule,omitempty"`
	// isOwned is true if a controller owns the object.
	isOwned bool
}

// describeRows returns the rows of an object. It may modify obj.
func describeRows(k kinds.Kind, obj client.Object) []stopRow {
	var rows []stopRow
	isOwned := metav1.GetControllerOf(obj) != nil
	for _, r := range k.DescribeRows(obj) {
		rows = append(rows, stopRow{Row: r, isOwned: isOwned})
	}
	return rows
}

// partNames returns the names of the parts of MySQLClusters, the only kind with several parts.
func partNames() []string {
	var names []string
	for _, p := range mysqlswitches.ListParts() {
		names = append(names, p.PartName)
	}
	return names
}

// displayName returns the argument that names the object in commands, with its display name if possible.
func (r stopRow) displayName() string { return r.CommandKind() + "/" + r.ShownName() }

// sortByAttention sorts rows by how urgently a user should look at them. Rows of the same class keep their order.
func sortByAttention(rows []stopRow, now time.Time) {
	slices.SortStableFunc(rows, func(a, b stopRow) int { return cmp.Compare(a.Attention(now), b.Attention(now)) })
}

// withOverdue marks the row if its stop should have ended, and updates NEXT.
func (r stopRow) withOverdue(now time.Time) stopRow {
	r.Overdue, r.Next = r.IsOverdue(now), r.NextAt(now)
	return r
}
