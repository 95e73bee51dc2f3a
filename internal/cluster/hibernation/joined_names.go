// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
)

// maxJoinedNames is the maximum number of names in a message.
const maxJoinedNames = 5

// joinNames sorts and joins names. If there are more than maxJoinedNames, it omits the later names and appends their
// number.
func joinNames(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) <= maxJoinedNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxJoinedNames], ", "), len(sorted)-maxJoinedNames)
}

// machineNames joins the names, IDs and notes of machines.
func (o Observed) machineNames(ids []string) string {
	var names []string
	for _, m := range o.Machines {
		if !slices.Contains(ids, m.ID) {
			continue
		}
		name := m.ID
		if m.Name != "" {
			name = fmt.Sprintf("%s (%s)", m.Name, m.ID)
		}
		if m.Note != "" {
			name += ": " + m.Note
		}
		names = append(names, name)
	}
	return joinNames(names)
}
