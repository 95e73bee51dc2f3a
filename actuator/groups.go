// SPDX-License-Identifier: Apache-2.0

package actuator

import (
	"context"
	"slices"
)

// GroupActuator is an optional interface of a BatchActuator. Its cloud has groups that replace stopped machines, and
// can suspend this replacement. If an actuator does not implement it, a cluster with a machine in a group is not
// stopped (docs/adr/0050-groups-are-held-when-asked-for.md).
type GroupActuator interface {
	BatchActuator
	// ObserveGroups returns the groups of the queries. Groups that do not exist are omitted.
	ObserveGroups(ctx context.Context, t Target, queries []GroupQuery) ([]Group, error)
	// ChangeGroups changes groups, without waiting for their machines. A repeated change causes no error. A group
	// whose change is rejected does not prevent the changes to the others; RefusedIDs of the error lists the
	// rejected groups.
	ChangeGroups(ctx context.Context, t Target, changes []GroupChange) error
}

// GroupQuery identifies a group to observe.
type GroupQuery struct {
	// Name is the name of the group, as in Machine.Group.
	Name string
	// WantsSize is true if the caller may change the size of the group. If it is false, the size is not read from
	// clouds that need a separate call for it.
	WantsSize bool
}

// Group is a group of machines as the cloud reports it.
type Group struct {
	// Name is the name of the group, as in Machine.Group.
	Name string
	// Processes are the processes with which a group of this cloud changes its machines. Suspended are the suspended
	// processes among them.
	Processes, Suspended []string
	// Min is the minimum size of the group, and Desired is its desired size, both in machines.
	Min, Desired int32
	// InService is the number of machines that the cloud reports as InService.
	InService int32
	// Unscalable is the reason why the size of the group must not be changed, such as suspended launches. It is empty
	// if the size may be changed.
	Unscalable string
	// Unsettled is the reason why Min and Desired are unknown or may still change: the cloud is carrying out an earlier
	// change, and accepts no other change until it has finished. It is empty if no change is in progress.
	Unsettled string
	// Manager is the cloud resource that sets the size of the group, such as an EKS node group. It is set only if this
	// resource was read in a separate call.
	Manager string
}

// GroupChange defines a change to a group. Empty fields change nothing.
type GroupChange struct {
	// Name is the name of the group.
	Name string
	// Suspend and Resume are the processes to suspend and to resume.
	Suspend, Resume []string
	// Size, if set, replaces the size of the group.
	Size *GroupSize
}

// GroupSize holds the minimum size and the desired size of a group, in machines.
type GroupSize struct{ Min, Desired int32 }

// IsSuspended reports whether all processes of the group are suspended.
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
