// SPDX-License-Identifier: Apache-2.0

package actuator

import (
	"context"
	"slices"
)

// GroupActuator is an optional interface of a BatchActuator whose cloud has groups that can be kept from replacing
// stopped machines. Without it, a member of a group keeps its cluster running
// (docs/adr/0050-groups-are-held-when-asked-for.md).
type GroupActuator interface {
	BatchActuator
	// ObserveGroups returns the named groups. Groups that do not exist are left out.
	ObserveGroups(ctx context.Context, t Target, names []string) ([]Group, error)
	// ChangeGroups changes groups, and waits for no machine. A repeated change causes no error. A refused group does
	// not prevent the change of the others; the error names the refused groups in RefusedIDs.
	ChangeGroups(ctx context.Context, t Target, changes []GroupChange) error
}

// Group is a group of machines as the cloud reports it.
type Group struct {
	// Name is the name of the group, as in Machine.Group.
	Name string
	// Processes are the processes by which a group of this cloud changes its machines. Suspended are those of them
	// that are suspended.
	Processes, Suspended []string
	// Min and Desired are the numbers of machines that the group keeps.
	Min, Desired int32
	// InService is the number of machines that the group counts as in service.
	InService int32
	// Unscalable describes why the size of the group must not be changed, such as an EKS node group that sets it. It is
	// empty if the size may be changed.
	Unscalable string
}

// GroupChange changes a group. Empty fields change nothing.
type GroupChange struct {
	// Name is the name of the group.
	Name string
	// Suspend and Resume are processes.
	Suspend, Resume []string
	// Size replaces the size of the group.
	Size *GroupSize
}

// GroupSize holds the numbers of machines that a group keeps.
type GroupSize struct{ Min, Desired int32 }

// IsSuspended reports whether no process of the group acts.
func (g Group) IsSuspended() bool { return len(g.ActiveProcesses()) == 0 }

// ActiveProcesses returns the processes that are not suspended.
func (g Group) ActiveProcesses() []string { return withoutAll(g.Processes, g.Suspended) }

func withoutAll(names, those []string) []string {
	var left []string
	for _, name := range names {
		if !slices.Contains(those, name) {
			left = append(left, name)
		}
	}
	return left
}
