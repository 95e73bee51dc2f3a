// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
)

// maxJoinedNames is the maximum number of names in a message.
const maxJoinedNames = 5

// joinNames joins sorted names. It shows the first ones and the number of the others if there are many.
func joinNames(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) <= maxJoinedNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxJoinedNames], ", "), len(sorted)-maxJoinedNames)
}

// machineNames joins the names that users recognise machines by.
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
