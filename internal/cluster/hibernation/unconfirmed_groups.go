// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The record of a hibernation is lost if the ClusterDeployment is restored from a dump without its status. Groups of
// the cloud that the hibernation has suspended or scaled to zero stay so, because their former state is not known.
// Conditions list these groups until a user has changed them, or until the next hibernation
// (docs/adr/0050-groups-are-held-when-asked-for.md).

// hasLostRecord reports whether the record of the last hibernation is incomplete. Such a record contains no nodes, or
// Torpor has found all machines off in a cluster that should run.
func (o Observed) hasLostRecord() bool {
	return o.Record != nil && (len(o.Record.Nodes) == 0 || o.Record.Repair)
}

// unconfirmedGroups returns the groups that may be in the state of a hibernation whose record was lost.
func (o Observed) unconfirmedGroups() []string {
	if !o.hasLostRecord() {
		return nil
	}
	var names []string
	for _, m := range o.Machines {
		if m.Group != "" && o.recordedGroup(m.Group) == nil && o.mayBeSuspended(m.Group) {
			names = append(names, m.Group)
		}
	}
	for _, g := range o.Groups {
		// Torpor recognizes its own pauses, and ends them even without a record. After a repair, only a user can have
		// paused the Cluster.
		isPausedByOther := isOfHub(g.Name) && len(g.Processes) == 0
		if isPausedByOther && !o.Record.Repair && o.recordedGroup(g.Name) == nil {
			names = append(names, g.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// mayBeSuspended reports whether every process of a group is, or may be, suspended. Without the annotation
// MachineGroups, groups are not read: a hibernation without a record may have suspended them, and a repair has not.
func (o Observed) mayBeSuspended(name string) bool {
	group, isKnown := o.findGroup(name)
	if !isKnown {
		return o.CanChangeGroups && !NeedsGroups(o) && !o.Record.Repair
	}
	return len(group.Processes) > 0 && group.IsSuspended()
}

// mayHaveUnknownGroups reports whether groups may have been scaled to zero by a hibernation whose record was lost. The
// cloud lists no machine of such a group.
func (o Observed) mayHaveUnknownGroups() bool {
	isScaling := o.Options.MachineGroups == hivev1.MachineGroupsScaleToZero && o.CanChangeGroups
	hasMember := slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool { return m.Group != "" })
	return isScaling && o.hasLostRecord() && !o.Record.Repair && !hasMember && !o.hasScaledGroups()
}

// unconfirmedNote describes what a user has to confirm; empty if nothing.
func (o Observed) unconfirmedNote() string {
	var parts []string
	if names := o.unconfirmedGroups(); len(names) > 0 {
		note := "the state before the hibernation is not recorded for machine groups that may be suspended or paused: " +
			joinNames(names) + "; after the resume, resume their processes or end their pauses"
		if !NeedsGroups(o) {
			note += ", and set the annotation " + hivev1.MachineGroupsAnnotation + " so that Torpor reads the groups"
		}
		parts = append(parts, note)
	}
	if o.mayHaveUnknownGroups() {
		parts = append(parts, "the size before the hibernation is not recorded for machine groups that "+
			hivev1.MachineGroupsScaleToZero+" may have scaled to zero; set their sizes after the resume")
	}
	return strings.Join(parts, "; ")
}

// unconfirmedCondition adds the groups that a user has to confirm to the given Degraded condition of a running cluster,
// which may be empty.
func (o Observed) unconfirmedCondition(degraded decision.Condition) decision.Condition {
	note := o.unconfirmedNote()
	switch {
	case note == "":
		return degraded
	case degraded.Message != "":
		return decision.True(degraded.Reason, degraded.Message+"; "+note)
	default:
		return decision.True(hivev1.MachineGroupsUnconfirmedReason, "The cluster runs; "+note)
	}
}

// pausesWithoutRecord returns entries for objects that Torpor has paused, if the records lack them. The mark of Torpor
// on such an object means that it was not paused before, so a resume ends the pause.
func (o Observed) pausesWithoutRecord(records []hivev1.MachineGroupRecord) []hivev1.MachineGroupRecord {
	var found []hivev1.MachineGroupRecord
	for _, g := range o.Groups {
		isOurs := !IsGroupOfCloud(g.Name) && len(g.Processes) > 0 && g.IsSuspended()
		isRecorded := slices.ContainsFunc(records, func(r hivev1.MachineGroupRecord) bool { return r.Name == g.Name })
		if isOurs && !isRecorded && len(records)+len(found) < maxGroups {
			found = append(found, hivev1.MachineGroupRecord{Name: g.Name, Mode: hivev1.MachineGroupsSuspend})
		}
	}
	return found
}
