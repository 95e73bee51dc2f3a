// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Spot machines that cannot be stopped are terminated, if the cluster itself makes new ones of them: after every other machine is
// stopped, and only those that the saved record names (docs/adr/0024-spot-machines-are-terminated-last.md). One that a MachineSet makes
// after the record was written is added to it as soon as the cluster answers, for which its other machines are started again.

const (
	// maxSpotMachines is what the schema of the record allows.
	maxSpotMachines = 500
	// maxReplacementsPerPass paces deletions, because each is two calls of the time of one look.
	maxReplacementsPerPass = 10
)

// ReplaceableMachine is an OpenShift Machine of which the cluster makes a new one once it is deleted.
type ReplaceableMachine struct {
	// ID is the cloud's own name of the machine.
	ID string
	// Name and UID are those of the Machine.
	Name, UID string
}

// NeedsMachines reports whether the cluster's OpenShift Machines matter: which spot machines it would make anew, and which of those
// that were terminated it still has.
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

// hasTerminatedMachines reports whether the record names machines that the cloud does not have any more. Without any machine nothing is
// known of them.
func (o Observed) hasTerminatedMachines() bool {
	return o.Record != nil && len(o.Machines) > 0 && slices.ContainsFunc(o.Record.SpotMachines, func(id string) bool { return !o.isAtCloud(id) })
}

func (o Observed) isAtCloud(id string) bool {
	return slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool { return m.ID == id })
}

// spotMachinesToRecord are those that may be terminated, with those of a resume that is cancelled whose Machines may still be there.
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

// isTerminatedLast reports whether a machine is not to be stopped but terminated in a hibernation.
func isTerminatedLast(m actuator.Machine, r *hivev1.HibernationRecord) bool {
	return m.Spot && r != nil && slices.Contains(r.SpotMachines, m.ID)
}

// awaitsSpotRecord reports whether a spot machine runs that is not in the record of a saved hibernation: it came later, or the cluster
// did not say that it makes a new one of it.
func (o Observed) awaitsSpotRecord() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool {
		return m.Spot && m.State == actuator.Running && !isTerminatedLast(m, o.Record)
	})
}

// awaitsSpotRecordInPart reports whether the cluster is down in part meanwhile. One that runs whole is not stopped.
func (o Observed) awaitsSpotRecordInPart() bool {
	return o.awaitsSpotRecord() && !o.allMachinesAre(actuator.Running)
}

// spotMachinesToAdd are those that a saved hibernation may terminate and does not name.
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

// startMachinesAgain takes a hibernation back that cannot be finished: only the cluster itself can say whether its spot machine may be
// terminated. If it may not, the cluster stays whole.
func startMachinesAgain(o Observed) Plan {
	p := awaitStopped(o)
	p.Record = withAsleepAt(p.Record, nil)
	var late []string
	for _, m := range o.Machines {
		if m.Spot && m.State == actuator.Running && !isTerminatedLast(m, o.Record) {
			late = append(late, m.ID)
		}
	}
	p.Ready = decision.False(hivev1.StartingMachinesReason, fmt.Sprintf("Expected no spot machine that is not in the record of the hibernation, found %s; "+
		"the other machines are started again, so that the cluster says whether it may be terminated", o.machineNames(late)))
	p.RetryAfter, p.ProbeInterval = refusalRest(actuator.NoCapacity, o.Record.SleepStartedAt.Time, o.Now), minCloudInterval
	if stopped := o.machineIDs(actuator.Stopped); len(stopped) > 0 {
		p.Do = StartMachines{IDs: stopped}
	}
	return p
}

// machinesToTerminate are those that are terminated once every other machine is stopped.
func (o Observed) machinesToTerminate() []string {
	var ids []string
	for _, m := range o.Machines {
		if (m.State == actuator.Running || m.State == actuator.Starting) && isTerminatedLast(m, o.Record) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// areOnlySpotMachinesLeft reports whether a saved hibernation has nothing left to do but to terminate: there are others, and all of
// them are stopped.
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

// terminateMachines comes last because nothing takes it back: a hibernation that is cancelled before keeps the machines.
func terminateMachines(o Observed) Plan {
	p := awaitStopped(o)
	p.Do = TerminateMachines{IDs: o.machinesToTerminate()}
	return o.restRefused(p)
}

// machinesToReplace are the Machines of what was terminated. One whose machine the cloud still has is never among them.
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

// awaitsReplacement reports whether a cluster has Machines of what was terminated, or whether that is not known in its resume.
func (o Observed) awaitsReplacement() bool {
	return len(o.machinesToReplace()) > 0 || o.hasNotResumed() && o.hasTerminatedMachines() && !o.HasReadMachines
}

// replacementNote names what keeps new machines from being made.
func (o Observed) replacementNote() string {
	machines := o.machinesToReplace()
	if len(machines) == 0 {
		return "OpenShift Machines that could not be read, so that those of terminated spot machines may be left"
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	note := "OpenShift Machines of terminated spot machines, which are to be deleted so that new ones are made: " + joinNames(names)
	if o.ReplacementError != "" {
		note += "; " + o.ReplacementError
	}
	return note
}
