// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The plans in this file apply to a cluster that should hibernate.

func clusterHibernates(o Observed) Plan {
	p := hibernatedPlan(o, hivev1.HibernatingHibernationReason, "Every machine is stopped"+o.heldNote()+o.timeoutNote())
	note := o.stopNote()
	if len(p.Record.Nodes) == 0 { // For example, after a restore of the hub without the status.
		note += unrecordedNodesNote
	}
	if o.Record = p.Record; o.unconfirmedNote() != "" {
		note += "; " + o.unconfirmedNote()
	}
	p.Ready = decision.False(hivev1.HibernatingHibernationReason, "The cluster hibernates"+note+o.Options.ignoredNote())
	p.Record = withAsleepAt(p.Record, new(metav1.NewTime(o.Now)))
	p.RequeueAfter = asleepInterval
	if left := closeLookWindow - o.Now.Sub(p.Record.AsleepAt.Time); left > 0 {
		p.CloudInterval, p.RequeueAfter = closeLookInterval, max(left, minCloudInterval)
	}
	return p
}

// awaitFirstSync leaves a newly installed cluster on, because the cluster may need the objects of the first sync to
// hibernate and to resume.
func awaitFirstSync(o Observed) Plan {
	return Plan{
		Hibernating: decision.False(hivev1.SyncSetsNotAppliedReason,
			"The hibernation waits for the first application of the cluster's SyncSets, until "+o.SyncAwaitedUntil.UTC().Format(time.RFC3339)+" at the latest"),
		Ready: decision.True(hivev1.RunningHibernationReason,
			"The cluster runs and its API server answers; the cluster hibernates once its SyncSets have been applied"),
		Unreachable:  reachableCondition(),
		Record:       o.Record,
		RequeueAfter: max(min(firstSyncInterval, o.SyncAwaitedUntil.Sub(o.Now)), minCloudInterval),
	}
}

// awaitNodeRecord waits some time for an unresponsive API server. Without recorded nodes, certificates may have to be
// approved by hand at the resume.
func awaitNodeRecord(o Observed) Plan {
	return Plan{
		Hibernating:  decision.True(hivev1.StoppingHibernationReason, "The machines are about to be stopped"),
		Ready:        decision.False(hivev1.RecordingNodesReason, "Waiting for the API server, to record the nodes before the stop: "+o.APIMessage),
		Unreachable:  decision.True(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:       o.Record,
		RequeueAfter: machineWaitInterval, ProbeInterval: minCloudInterval,
	}
}

// recordNodes only writes status.
// Invariant: machines are stopped only in a pass that has read the saved record, so a crash between the save and the
// stop loses nothing (docs/adr/0004-the-record-of-a-sleep.md, checked by TestEveryStateConverges).
func recordNodes(o Observed) Plan {
	p := stoppingPlan(o)
	p.RequeueAfter = immediately
	return p
}

func stopMachines(o Observed) Plan {
	p := awaitStopped(o)
	do := StopMachines{IDs: o.machinesToStopNow(), TerminatedLater: o.machinesToTerminate()}
	if o.awaitsWorkersOff() {
		do.StoppedLater = o.withoutWorkers(o.machinesToStop())
	}
	p.Do = do
	p.Record = withAsleepAt(p.Record, nil)
	return o.restRefused(p)
}

// restRefused delays the next attempt for machines and groups whose change was refused.
func (o Observed) restRefused(p Plan) Plan {
	if o.Refusal != nil {
		p.RetryAfter = refusalRest(o.Refusal.Class, o.stopBeganAt(), o.Now)
		p.RequeueAfter = max(p.RetryAfter, minCloudInterval)
		p.CloudInterval = p.RequeueAfter
	}
	return p
}

func awaitStopped(o Observed) Plan {
	p := stoppingPlan(o)
	p.RequeueAfter, p.CloudInterval = machineWaitInterval, cloudInterval(o.stopBeganAt(), o.Now)
	return p
}

// withAsleepAt returns the record with AsleepAt, the time since which every machine is stopped, or without it if at is
// nil. A time that is already set is not replaced.
func withAsleepAt(r *hivev1.HibernationRecord, at *metav1.Time) *hivev1.HibernationRecord {
	if (r.AsleepAt == nil) == (at == nil) {
		return r
	}
	r = r.DeepCopy()
	r.AsleepAt = at
	return r
}

func stoppingPlan(o Observed) Plan {
	message := "The machines are being stopped"
	if o.HasNoVersion {
		message += "; the version check is skipped, because the cluster is not an OpenShift cluster"
	}
	p := hibernatedPlan(o, hivev1.StoppingHibernationReason, message)
	p.Ready = stoppingCondition(o)
	return p
}

func hibernatedPlan(o Observed, reason, message string) Plan {
	return Plan{
		Hibernating: decision.True(reason, message),
		Unreachable: clusterAsleepCondition(),
		Record:      ensureHibernationRecord(o),
	}
}

func clusterAsleepCondition() decision.Condition {
	return decision.True(hivev1.ClusterAsleepReason, "The cluster hibernates or is being stopped; Torpor does not connect to it")
}

func stoppingCondition(o Observed) decision.Condition {
	if o.Refusal != nil && o.isHibernationOpen() && len(o.machinesToStop())+len(o.machinesToTerminate())+len(o.groupsToHold()) > 0 {
		return decision.False(hivev1.FailedToStopReason, o.Refusal.Message+o.refusedStopNote()+o.stopOrderNote())
	}
	if o.areOnlySpotMachinesLeft() {
		return decision.False(hivev1.TerminatingSpotMachinesReason,
			"Every other machine is stopped; spot machines, which cannot be stopped, are being terminated; the cluster replaces them at the resume")
	}
	// Machines are listed only when they are late, because each change to the message is a status write.
	if o.isHibernationOpen() && o.Now.Sub(o.stopBeganAt()) > lateAfter {
		pending := slices.Concat(o.machinesToStop(), o.machinesToTerminate(), o.machineIDs(actuator.Stopping, actuator.Starting))
		return decision.False(hivev1.WaitingForMachinesToStopReason, fmt.Sprintf("Waiting for %s to stop%s", o.machineNames(pending), o.stopOrderNote()+o.drainNote()))
	}
	return decision.False(hivev1.StoppingMachinesReason,
		fmt.Sprintf("Stopping the cluster's %d machines%s%s%s", len(o.Machines), o.unrecordedNodesWarning(), o.stopOrderNote(), o.drainNote()+o.Options.ignoredNote()))
}

// refusedStopNote describes how much of the cluster still runs, and how to proceed. A wrong state is expected to be
// temporary until the hibernation has stalled.
func (o Observed) refusedStopNote() string {
	hasLasted := o.Refusal.Class == actuator.WrongState && o.isHibernationOpen() && o.Now.Sub(o.stopBeganAt()) > stalledAfter
	switch {
	case !isLastingRefusal(o.Refusal.Class) && !hasLasted:
		return ""
	case o.allMachinesAre(actuator.Running):
		return "; no machine is stopped until all can be stopped: remove the cause, or set spec.powerState to Running"
	default:
		return "; other machines are stopped, so the cluster is partly down: remove the cause, or set spec.powerState to Running"
	}
}

// isLastingRefusal reports whether the class is Other or NotFound. Only a user can resolve such a refusal.
func isLastingRefusal(c actuator.ErrorClass) bool {
	return c == actuator.Other || c == actuator.NotFound
}

const unrecordedNodesNote = "; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume"

// unrecordedNodesWarning is shown while the hibernation can still be cancelled. Without recorded nodes and OpenShift
// Machines, certificate requests cannot be evaluated at the resume.
func (o Observed) unrecordedNodesWarning() string {
	switch {
	case len(ensureHibernationRecord(o).Nodes) == 0:
		return unrecordedNodesNote
	case !o.isHibernationOpen() && !o.isResuming() && len(o.Nodes) == 0:
		return "; the cluster's nodes could not be recorded, so the record of the last hibernation is used"
	default:
		return ""
	}
}

// ensureHibernationRecord keeps the record of a hibernation in progress, or creates one. If no nodes were listed, those
// of the last hibernation are copied.
func ensureHibernationRecord(o Observed) *hivev1.HibernationRecord {
	if o.isHibernationOpen() {
		if o.Record.PowerStateBefore == nil || o.isTimedOut() {
			return o.Record
		}
		record := o.Record.DeepCopy() // spec.hibernateAfter began this hibernation. By now, spec.powerState or a Slumber also requests it.
		record.PowerStateBefore, record.RequestedBy = nil, o.RequestedBy
		return record
	}
	record := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now), RequestedBy: o.requester()}
	if o.isTimedOut() {
		record.PowerStateBefore = new(o.SpecPowerState)
	}
	var awaited []ObservedNode
	if o.hasNotResumed() {
		awaited = o.awaitedNodes()
	}
	for _, node := range o.Nodes {
		// The nodes that a cancelled resume awaited are recorded as ready: only the stop of their machines made them
		// unready. Such nodes may also have been silent for hours, which does not mean that their clocks are behind.
		node.ClockSkewed = node.isClockAhead(o.Now) || node.isClockBehind(o.Now) && !o.hasNotResumed()
		node.Ready = node.Ready || slices.ContainsFunc(awaited, func(a ObservedNode) bool { return a.Name == node.Name })
		record.Nodes = append(record.Nodes, node.RecordedNode)
	}
	if len(record.Nodes) == 0 && o.Record != nil {
		record.Nodes = o.Record.Nodes
	}
	record.MachineGroups = o.groupsToRecord()
	record.SpotMachines, record.Drain, record.BrokenOperators = o.spotMachinesToRecord(), o.newDrain(), o.operatorsToRecord()
	return record
}
