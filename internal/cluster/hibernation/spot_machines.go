// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Spot machines that cannot be stopped are terminated if the cluster itself replaces them.
// Invariant: they are terminated only after every other machine is stopped, and only if the saved record contains
// them (docs/adr/0024-spot-machines-are-terminated-last.md, checked by TestEveryObservationHasAHarmlessPlan).
// A spot machine that a MachineSet creates after the record was written is added to the record as soon as the cluster
// responds. The other machines are started again for this purpose.

const (
	// maxSpotMachines is the limit in the record's schema.
	maxSpotMachines = 500
	// maxReplacementsPerPass limits deletions of Machines, because each makes two calls within the time limit of a
	// poll.
	maxReplacementsPerPass = 10
)

// ReplaceableMachine is an OpenShift Machine that the cluster replaces when it is deleted.
type ReplaceableMachine struct {
	// ID is the cloud's identifier of the machine.
	ID string
	// Name and UID identify the Machine.
	Name, UID string
}

// NeedsMachines reports whether the OpenShift Machines must be read. They show which spot machines the cluster would
// replace, and which Machines of terminated machines still exist.
func NeedsMachines(o Observed) bool {
	switch {
	case !NeedsNodes(o):
		return false
	case o.shouldHibernate():
		return slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool { return m.Spot }) || o.hasTerminatedMachines()
	default:
		return o.hasTerminatedMachines()
	}
}

// hasTerminatedMachines reports whether the record contains spot machines that the cloud no longer has. It is false if
// the cloud lists no machine at all, because this is unknown then.
func (o Observed) hasTerminatedMachines() bool {
	return o.Record != nil && len(o.Machines) > 0 && slices.ContainsFunc(o.Record.SpotMachines, func(id string) bool { return !o.isAtCloud(id) })
}

func (o Observed) isAtCloud(id string) bool {
	return slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool { return m.ID == id })
}

// spotMachinesToRecord returns the machines that may be terminated. If the last resume has not ended, they include
// terminated machines whose Machines may still exist.
func (o Observed) spotMachinesToRecord() []string {
	var ids []string
	if o.hasNotResumed() {
		ids = slices.DeleteFunc(slices.Clone(o.Record.SpotMachines), func(id string) bool {
			return o.isAtCloud(id) || o.HasReadMachines && !o.isReplaceable(id)
		})
	}
	for _, m := range o.Machines {
		if m.Spot && o.isReplaceable(m.ID) {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), maxSpotMachines)]
}

func (o Observed) isReplaceable(id string) bool {
	return slices.ContainsFunc(o.Replaceable, func(m ReplaceableMachine) bool { return m.ID == id })
}

// isTerminatedLast reports whether a hibernation terminates the machine instead of stopping it.
func isTerminatedLast(m actuator.Machine, r *hivev1.HibernationRecord) bool {
	return m.Spot && r != nil && slices.Contains(r.SpotMachines, m.ID)
}

// awaitsSpotRecord reports whether a spot machine runs that is not in a saved hibernation record. It was created
// later, or the cluster did not report that it would replace the machine.
func (o Observed) awaitsSpotRecord() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool {
		return m.Spot && m.State == actuator.Running && !isTerminatedLast(m, o.Record) && !o.isTerminatedByGroup(m)
	})
}

// awaitsSpotRecordInPart reports whether other machines are off while a spot record is awaited. If all machines run,
// none must be started again.
func (o Observed) awaitsSpotRecordInPart() bool {
	return o.awaitsSpotRecord() && !o.allMachinesAre(actuator.Running)
}

// spotMachinesToAdd returns the machines that may be terminated, but are not in the hibernation's record yet.
func (o Observed) spotMachinesToAdd() []string {
	if !o.awaitsSpotRecord() {
		return nil
	}
	return slices.DeleteFunc(o.spotMachinesToRecord(), func(id string) bool { return slices.Contains(o.Record.SpotMachines, id) })
}

// recordSpotMachines only writes status, as recordNodes does.
func recordSpotMachines(o Observed) Plan {
	p := stoppingPlan(o)
	p.Record = p.Record.DeepCopy()
	p.Record.SpotMachines = o.spotMachinesToRecord()
	p.RequeueAfter = immediately
	return p
}

// startMachinesAgain reverts a hibernation that cannot be completed: only the running cluster can show whether its spot
// machine may be terminated. If termination is not possible, the cluster keeps running.
func startMachinesAgain(o Observed) Plan {
	p := awaitStopped(o)
	p.Record = withAsleepAt(p.Record, nil)
	var late []string
	for _, m := range o.Machines {
		if m.Spot && m.State == actuator.Running && !isTerminatedLast(m, o.Record) {
			late = append(late, m.ID)
		}
	}
	p.Ready = decision.False(hivev1.StartingMachinesReason, fmt.Sprintf("Expected every running spot machine to be in the record of the hibernation, found others: %s; "+
		"the stopped machines are started again, because only the running cluster can show whether spot machines may be terminated", o.machineNames(late)))
	p.RetryAfter, p.ProbeInterval = refusalRest(actuator.NoCapacity, o.Record.SleepStartedAt.Time, o.Now), minCloudInterval
	if stopped := o.machineIDs(actuator.Stopped); len(stopped) > 0 {
		p.Do = StartMachines{IDs: stopped}
	}
	return p
}

// machinesToTerminate returns the machines that are terminated once every other machine is stopped.
func (o Observed) machinesToTerminate() []string {
	var ids []string
	for _, m := range o.Machines {
		if (m.State == actuator.Running || m.State == actuator.Starting) && isTerminatedLast(m, o.Record) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// areOnlySpotMachinesLeft reports whether termination is the only remaining step of a saved hibernation: other
// machines exist, and all of them are stopped.
func (o Observed) areOnlySpotMachinesLeft() bool {
	stopped, left := 0, 0
	for _, m := range o.Machines {
		switch {
		case m.State == actuator.Stopped && !m.HoldsCapacity:
			stopped++
		case isTerminatedLast(m, o.Record):
			left++
		default:
			return false
		}
	}
	return o.shouldHibernate() && o.isHibernationOpen() && stopped > 0 && left > 0
}

// terminateMachines is the last step because it is irreversible. A hibernation that is cancelled earlier keeps the
// machines.
func terminateMachines(o Observed) Plan {
	p := awaitStopped(o)
	p.Do = TerminateMachines{IDs: o.machinesToTerminate()}
	return o.restRefused(p)
}

// machinesToReplace returns the Machines of terminated machines. A Machine is never included while its machine exists
// in the cloud.
func (o Observed) machinesToReplace() []ReplaceableMachine {
	if !o.hasTerminatedMachines() {
		return nil
	}
	var machines []ReplaceableMachine
	for _, m := range o.Replaceable {
		if slices.Contains(o.Record.SpotMachines, m.ID) && !o.isAtCloud(m.ID) {
			machines = append(machines, m)
		}
	}
	return machines
}

// awaitsReplacement reports whether Machines of terminated machines exist, or whether this is unknown during a
// resume.
func (o Observed) awaitsReplacement() bool {
	return len(o.machinesToReplace()) > 0 || o.hasNotResumed() && o.hasTerminatedMachines() && !o.HasReadMachines
}

// replacementNote describes the Machines of terminated spot machines that must be deleted before new machines are
// created.
func (o Observed) replacementNote() string {
	machines := o.machinesToReplace()
	if len(machines) == 0 {
		return "OpenShift Machines, which could not be read and may include Machines of terminated spot machines"
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	note := "OpenShift Machines of terminated spot machines, which must be deleted so that new Machines are created: " + joinNames(names)
	if o.ReplacementError != "" {
		note += "; " + o.ReplacementError
	}
	return note
}
