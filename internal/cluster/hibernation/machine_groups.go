// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// A machine group of the cloud terminates and replaces machines that stop. With the option MachineGroups, such a
// group is held first: its processes are suspended, or its size is set to zero.
// Invariant: a group is held only if the saved record contains its earlier state, and no member of a suspended group is
// stopped before every process of the group is observed as suspended. A record entry is removed only once the group is
// observed in its earlier state, was paused by another user, or no longer exists
// (docs/adr/0050-groups-are-held-when-asked-for.md, checked by TestGroupHistoriesTerminateNoMachine).

// maxGroups is the limit in the record's schema.
const maxGroups = 100

// NeedsGroups reports whether the machines' groups must be read.
func NeedsGroups(o Observed) bool {
	return o.Options.MachineGroups != "" || o.Record != nil && len(o.Record.MachineGroups) > 0
}

// NeedsGroupSizes reports whether the sizes of the groups must be read, because they may be changed.
func NeedsGroupSizes(o Observed) bool {
	return o.Options.MachineGroups == hivev1.MachineGroupsScaleToZero || o.hasScaledGroups()
}

// groupReason returns the reason why machine groups forbid stopping the machines: an invalid option, objects that
// cannot be read, or a group of running machines that cannot be suspended, paused or scaled to zero. Only such a group
// interrupts a hibernation in progress, because each further stop could terminate a machine. The reason is empty if the
// machines may be stopped.
func (o Observed) groupReason() string {
	if o.Options.InvalidMachineGroups != "" && !o.hasNotResumed() {
		return o.Options.InvalidMachineGroups
	}
	if unread := o.groupsUnread(); unread != "" {
		return unread
	}
	first, names := "", []string(nil)
	for _, name := range o.activeGroups() {
		why := o.whyNotHeld(name)
		first = cmp.Or(first, why)
		if why != "" && why == first {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return o.tooManyGroups()
	case !IsGroupOfCloud(names[0]):
		return first
	}
	return fmt.Sprintf("Expected machines that stay off once they are stopped, found machines of the cloud's group %s, %s", joinNames(names), first+o.optionNote(first))
}

// tooManyGroups returns the reason why not all groups can be recorded. It is empty if they can.
func (o Observed) tooManyGroups() string {
	count := len(o.unrecordedGroups())
	if o.Record != nil {
		count += len(o.Record.MachineGroups)
	}
	if count <= maxGroups {
		return ""
	}
	return fmt.Sprintf("Expected at most %d machine groups to suspend, pause or scale to zero, found %d; scale down the groups that exceed this number", maxGroups, count)
}

// These are the reasons why a group of the cloud cannot be suspended or scaled to zero.
const (
	groupNotHeld    = "which terminates and replaces them; scale that group down instead, or remove the machines from the group"
	groupUnknown    = "which the cloud's API does not return; remove the machines from the group"
	groupUnscalable = "which cannot be scaled to zero, because %s; set the annotation " + hivev1.MachineGroupsAnnotation + " to " +
		hivev1.MachineGroupsSuspend + ", or scale the group down instead"
)

// optionNote returns a note about the annotation that lets Torpor suspend a group or scale it to zero.
func (o Observed) optionNote(why string) string {
	if why != groupNotHeld || !o.CanChangeGroups {
		return ""
	}
	return fmt.Sprintf("; or set the annotation %s to %s or %s", hivev1.MachineGroupsAnnotation, hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero)
}

// whyNotHeld returns the reason why a group must not be suspended, paused or scaled to zero. It is empty if Torpor may
// do so, or if the group is in the record.
func (o Observed) whyNotHeld(name string) string {
	group, isKnown := o.findGroup(name)
	isScaled := o.Options.MachineGroups == hivev1.MachineGroupsScaleToZero
	switch {
	case o.recordedGroup(name) != nil:
		return ""
	case !IsGroupOfCloud(name):
		return o.whyNotPaused(name)
	case o.Options.MachineGroups == "" || !o.CanChangeGroups:
		return groupNotHeld
	case !isKnown:
		return groupUnknown
	case isScaled && group.Unscalable != "":
		return fmt.Sprintf(groupUnscalable, group.Unscalable)
	case isScaled && slices.ContainsFunc(o.members(name), isOfControlPlane):
		return fmt.Sprintf(groupUnscalable, "the disks of its machines of the control plane would be lost")
	default:
		return ""
	}
}

// activeGroups returns the sorted names of the cloud's groups with machines that are not stopped, and of activeObjects.
func (o Observed) activeGroups() []string {
	names := o.activeObjects()
	for _, m := range o.Machines {
		if m.Group != "" && m.State != actuator.Stopped {
			names = append(names, m.Group)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (o Observed) findGroup(name string) (actuator.Group, bool) {
	at := slices.IndexFunc(o.Groups, func(g actuator.Group) bool { return g.Name == name })
	if at < 0 {
		return actuator.Group{}, false
	}
	return o.Groups[at], true
}

func (o Observed) recordedGroup(name string) *hivev1.MachineGroupRecord {
	if o.Record == nil {
		return nil
	}
	at := slices.IndexFunc(o.Record.MachineGroups, func(r hivev1.MachineGroupRecord) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return &o.Record.MachineGroups[at]
}

// members returns the machines of a group. A group that is a Kubernetes object may replace every machine of the
// cluster.
func (o Observed) members(name string) []actuator.Machine {
	if !IsGroupOfCloud(name) {
		return o.Machines
	}
	return slices.DeleteFunc(slices.Clone(o.Machines), func(m actuator.Machine) bool { return m.Group != name })
}

func isScaledToZero(r hivev1.MachineGroupRecord) bool {
	return r.Mode == hivev1.MachineGroupsScaleToZero
}

// hasScaledGroups reports whether the record contains groups that a hibernation scales to zero.
func (o Observed) hasScaledGroups() bool {
	return o.Record != nil && slices.ContainsFunc(o.Record.MachineGroups, isScaledToZero)
}

// isTerminatedByGroup reports whether a hibernation terminates the machine by scaling its group.
func (o Observed) isTerminatedByGroup(m actuator.Machine) bool {
	r := o.recordedGroup(m.Group)
	return r != nil && isScaledToZero(*r)
}

// heldNote lists the groups that a hibernation suspends, pauses or scales to zero.
func (o Observed) heldNote() string {
	notes := map[string][]string{}
	if o.Record != nil {
		for _, r := range o.Record.MachineGroups {
			notes[r.Mode] = append(notes[r.Mode], r.Name)
		}
	}
	var text strings.Builder
	for _, row := range []struct{ mode, note string }{{hivev1.MachineGroupsSuspend, "; suspended machine groups: "}, {hivev1.MachineGroupsScaleToZero, "; machine groups scaled to zero: "}} {
		if names := notes[row.mode]; len(names) > 0 {
			text.WriteString(row.note + joinNames(names))
		}
	}
	return text.String()
}

// groupsToRecord returns the groups for the record of a hibernation: the recorded groups with their former settings,
// and unrecordedGroups.
func (o Observed) groupsToRecord() []hivev1.MachineGroupRecord {
	var records []hivev1.MachineGroupRecord
	if o.Record != nil {
		for _, r := range o.Record.MachineGroups {
			r.RestoredAt, r.HeldAt = nil, nil // The hibernation changes the group again, and the resume restores the same state.
			records = append(records, r)
		}
	}
	for _, name := range o.unrecordedGroups() {
		group, _ := o.findGroup(name)
		r := hivev1.MachineGroupRecord{Name: name, Mode: o.Options.MachineGroups}
		switch {
		case !IsGroupOfCloud(name): // A pause by another user is neither recorded nor removed.
		case isScaledToZero(r):
			r.MinSize, r.DesiredSize = group.Min, group.Desired
		default:
			r.Suspended = slices.Clone(group.Suspended)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b hivev1.MachineGroupRecord) int { return strings.Compare(a.Name, b.Name) })
	return records
}

// unrecordedGroups returns the groups with machines that are not stopped, except recorded groups and those that must
// not be suspended, paused or scaled to zero. It is empty without the option MachineGroups.
func (o Observed) unrecordedGroups() []string {
	if o.Options.MachineGroups == "" {
		return nil
	}
	return slices.DeleteFunc(o.activeGroups(), func(name string) bool { return o.recordedGroup(name) != nil || o.whyNotHeld(name) != "" })
}

// hasUnrecordedGroups reports whether groups must be added to the record of a hibernation in progress.
func (o Observed) hasUnrecordedGroups() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && len(o.unrecordedGroups()) > 0
}

// recordGroups only writes status, as recordNodes does.
func recordGroups(o Observed) Plan {
	p := stoppingPlan(o)
	p.Record = p.Record.DeepCopy()
	p.Record.MachineGroups = o.groupsToRecord()
	p.RequeueAfter = immediately
	return p
}

// groupsToHold returns the remaining changes that suspend or pause the recorded groups, or scale them to zero.
func (o Observed) groupsToHold() []actuator.GroupChange {
	if o.Record == nil {
		return nil
	}
	var changes []actuator.GroupChange
	for _, r := range o.Record.MachineGroups {
		group, isKnown := o.findGroup(r.Name)
		active := group.ActiveProcesses()
		switch {
		case !isKnown, isScaledToZero(r) && group.Unsettled != "":
		case isScaledToZero(r) && (group.Min != 0 || group.Desired != 0):
			changes = append(changes, actuator.GroupChange{Name: r.Name, Size: &actuator.GroupSize{}})
		case !isScaledToZero(r) && len(active) > 0:
			changes = append(changes, actuator.GroupChange{Name: r.Name, Suspend: active})
		}
	}
	return changes
}

// unsettledGroups returns those groups recorded as scaled to zero whose size is still being changed, or is not known.
func (o Observed) unsettledGroups() []string {
	if o.Record == nil {
		return nil
	}
	var names []string
	for _, r := range o.Record.MachineGroups {
		if group, _ := o.findGroup(r.Name); isScaledToZero(r) && group.Unsettled != "" {
			names = append(names, r.Name)
		}
	}
	return names
}

// awaitsSettledGroups reports whether a stop waits until the sizes of groups are settled. A size of 0 may be outdated
// while the cloud changes the group. Once all machines have been off, an update of a group does not interrupt the
// hibernation.
func (o Observed) awaitsSettledGroups() bool {
	return o.isHibernationOpen() && o.Record.AsleepAt == nil && len(o.unsettledGroups()) > 0
}

// hasGroupsToHold reports whether groups must be suspended, paused or scaled to zero before machines may be stopped.
func (o Observed) hasGroupsToHold() bool {
	needsHold := o.isHibernationOpen() && len(o.groupsToHold()) > 0 || o.awaitsSettledGroups()
	return o.shouldHibernate() && needsHold || o.awaitsPause()
}

func holdGroups(o Observed) Plan {
	p := awaitStopped(o)
	if changes := o.groupsToHold(); len(changes) > 0 {
		p.Do = HoldGroups{Changes: changes}
		p.RequeueAfter = o.untilSeen(changes, p.RequeueAfter)
	}
	if names := o.unsettledGroups(); len(names) > 0 && o.Refusal == nil {
		p.Ready = decision.False(hivev1.StoppingMachinesReason, "Waiting for machine groups to be scaled to zero: "+joinNames(o.withNotes(names)))
	}
	p.Record = withAsleepAt(p.Record, nil)
	return o.restRefused(o.awaitPause(p))
}

// withNotes returns the names of groups, with the reasons why their sizes are not settled.
func (o Observed) withNotes(names []string) []string {
	noted := slices.Clone(names)
	for i, name := range noted {
		if group, _ := o.findGroup(name); group.Unsettled != "" {
			noted[i] += " (" + group.Unsettled + ")"
		}
	}
	return noted
}

// untilSeen returns the time until the next pass. The time is short if changes concern an object on the hub, because
// such a change can be observed soon.
func (o Observed) untilSeen(changes []actuator.GroupChange, otherwise time.Duration) time.Duration {
	if slices.ContainsFunc(changes, func(c actuator.GroupChange) bool { return isOfHub(c.Name) && !o.isRefused(c.Name) }) {
		return minCloudInterval
	}
	return otherwise
}

// heldGroups returns, for a cluster that should run, the recorded groups that are not restored to their state before
// the hibernation. It omits a deleted group once the cluster runs without it.
func (o Observed) heldGroups() []string {
	if o.Record == nil || o.shouldHibernate() {
		return nil
	}
	var names []string
	for _, r := range o.Record.MachineGroups {
		if !o.isReleased(r) {
			names = append(names, r.Name)
		}
	}
	return names
}

// heldScaledGroups returns the heldGroups that were scaled to zero.
func (o Observed) heldScaledGroups() []string {
	return slices.DeleteFunc(o.heldGroups(), func(name string) bool { return !isScaledToZero(*o.recordedGroup(name)) })
}

// isReleased reports whether a group is in its earlier state and has its machines, or was deleted and no node is
// missing.
func (o Observed) isReleased(r hivev1.MachineGroupRecord) bool {
	group, isKnown := o.findGroup(r.Name)
	switch {
	case !isKnown && (isOfHub(r.Name) && !o.HasReadClusterAPI || IsHealthCheck(r.Name) && !o.HasReadHealthChecks):
		return false
	case !isKnown:
		return o.API == Reachable && len(o.Machines) > 0 && len(o.missingNodes()) == 0
	case isScaledToZero(r):
		running := 0
		for _, m := range o.members(r.Name) {
			if m.State == actuator.Running {
				running++
			}
		}
		isRestored := r.RestoredAt != nil || hasFormerSize(r, group)
		return isRestored && group.InService >= group.Desired && running >= int(group.Desired)
	default:
		return len(processesToResume(r, group)) == 0
	}
}

// hasFormerSize reports whether a group has the recorded size. It returns false while the size is still being changed.
func hasFormerSize(r hivev1.MachineGroupRecord, group actuator.Group) bool {
	return group.Unsettled == "" && group.Min == r.MinSize && group.Desired == r.DesiredSize
}

// processesToResume returns the suspended processes that were not suspended before the hibernation.
func processesToResume(r hivev1.MachineGroupRecord, group actuator.Group) []string {
	return slices.DeleteFunc(slices.Clone(group.Suspended), func(process string) bool { return slices.Contains(r.Suspended, process) })
}

// groupsToRelease returns the changes that restore groups. Groups that were scaled to zero are restored first, with
// their machines. A suspended group is restored once all its members run and the nodes are back, because its health
// check would replace each member that does not run.
func (o Observed) groupsToRelease() []actuator.GroupChange {
	if o.Record == nil || o.shouldHibernate() {
		return nil
	}
	areNodesBack := o.API == Reachable && !o.awaitsNodes()
	var changes []actuator.GroupChange
	for _, r := range o.Record.MachineGroups {
		group, isKnown := o.findGroup(r.Name)
		doAllRun := !slices.ContainsFunc(o.members(r.Name), func(m actuator.Machine) bool { return m.State != actuator.Running })
		suspended := processesToResume(r, group)
		switch {
		case !isKnown, isScaledToZero(r) && group.Unsettled != "":
		case isScaledToZero(r) && r.RestoredAt == nil && o.isResuming() && !hasFormerSize(r, group):
			changes = append(changes, actuator.GroupChange{Name: r.Name, Size: &actuator.GroupSize{Min: r.MinSize, Desired: r.DesiredSize}})
		case !isScaledToZero(r) && len(suspended) > 0 && doAllRun && areNodesBack:
			changes = append(changes, actuator.GroupChange{Name: r.Name, Resume: suspended})
		}
	}
	return changes
}

// awaitsGroups reports whether a resume waits until its groups are restored. All machines run by then.
func (o Observed) awaitsGroups() bool {
	if !o.hasNotResumed() || len(o.heldGroups()) == 0 || !o.allMachinesAre(actuator.Running) {
		return false
	}
	isOver := o.Record.ReadyInPartAt != nil || o.isResuming() && o.Now.Sub(o.Record.ResumeStartedAt.Time) > partialResumeAfter
	return o.AwaitsAllMachines || !isOver
}

func awaitGroups(o Observed) Plan {
	message := "Waiting for machine groups to be restored to their state before the hibernation: " + joinNames(o.withNotes(o.heldGroups()))
	if o.Refusal != nil {
		message += "; " + o.Refusal.Message
	}
	p := resumingPlan(o, decision.False(hivev1.WaitingForMachinesReason, message))
	p.RequeueAfter = machineWaitInterval
	return o.withAction(p)
}

// settleGroups returns the record without the groups that are in their state before the hibernation. It also records
// the time since which groups have their former size. Groups that were not read in this pass are kept. During a resume,
// pauses of Torpor without an entry are added.
func (o Observed) settleGroups(r *hivev1.HibernationRecord) *hivev1.HibernationRecord {
	if r == nil || o.shouldHibernate() || r.ResumeStartedAt == nil || len(o.Groups)+len(o.Machines) == 0 {
		return r
	}
	var unrecorded []hivev1.MachineGroupRecord
	if o.hasNotResumed() {
		unrecorded = o.pausesWithoutRecord(r.MachineGroups)
	}
	if len(r.MachineGroups)+len(unrecorded) == 0 {
		return r
	}
	settled := r.DeepCopy()
	settled.MachineGroups = nil
	for _, group := range append(r.DeepCopy().MachineGroups, unrecorded...) {
		seen, isKnown := o.findGroup(group.Name)
		if isScaledToZero(group) && group.RestoredAt == nil && isKnown && hasFormerSize(group, seen) {
			group.RestoredAt = new(metav1.NewTime(o.Now.Truncate(time.Second)))
		}
		if isUnread := IsGroupOfCloud(group.Name) && !o.CanChangeGroups; isUnread || !o.isReleased(group) {
			settled.MachineGroups = append(settled.MachineGroups, group)
		}
	}
	return settled
}
