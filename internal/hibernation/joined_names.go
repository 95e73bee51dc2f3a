// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
)

// maxJoinedNames is how many names a message holds.
const maxJoinedNames = 5

// joinNames joins sorted names; of many it shows the first and says how many there are.
func joinNames(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) <= maxJoinedNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxJoinedNames], ", "), len(sorted)-maxJoinedNames)
}

// machineNames joins what people know machines by.
func (o Observed) machineNames(ids []string) string {
	var names []string
	for _, m := range o.Machines {
		switch {
		case !slices.Contains(ids, m.ID):
		case m.Name == "":
			names = append(names, m.ID)
		default:
			names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.ID))
		}
	}
	return joinNames(names)
}
