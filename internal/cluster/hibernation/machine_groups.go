// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
)

// groupReason returns why the machines must not be stopped: a group of the cloud replaces each machine that
// stops. It is empty for a cluster without such machines, and if all machines of groups are off. It also ends a
// hibernation in progress, because each further stop would destroy a machine.
func (o Observed) groupReason() string {
	var groups []string
	for _, m := range o.Machines {
		if m.Group != "" && m.State != actuator.Stopped {
			groups = append(groups, m.Group)
		}
	}
	if len(groups) == 0 {
		return ""
	}
	slices.Sort(groups)
	return fmt.Sprintf("Expected machines that stay off once they are stopped, found machines of the cloud's group %s, "+
		"which terminates and replaces them; scale that group down instead, or take its machines out of it", joinNames(slices.Compact(groups)))
}
