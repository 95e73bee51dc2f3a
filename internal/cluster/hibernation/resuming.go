// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The plans in this file apply to a cluster that should run.

// recordResume only writes status.
// Invariant: machines of a hibernated cluster are started only in a pass that has read the saved start of the resume
// (TestEveryStateConverges). Nodes request certificates as soon as they are on. If the manager crashed before it
// saved the start, the next manager would consider their requests older than the resume.
func recordResume(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.RequeueAfter = immediately
	return p
}

// awaitStarted polls the machines, and probes the API server once the first machine runs.
func awaitStarted(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.RequeueAfter = machineWaitInterval
	if o.anyMachineIs(actuator.Running) {
		p.ProbeInterval = o.resumeProbeInterval()
	}
	return o.withAction(p)
}

// withAction adds the action for a cluster that should run, independent of the report. Groups are restored first, then
// overdue workers are started, then certificate requests are approved, then Machines are replaced, then machines are
// started, then nodes are uncordoned. A machine with a refused start delays neither certificates nor uncordoning.
func (o Observed) withAction(p Plan) Plan {
	stopped, replaced := o.machinesToStart(), o.machinesToReplace()
	mayStart := len(stopped) > 0 && (o.isResuming() || o.anyMachineIs(actuator.Running))
	if o.NoActuator == "" && len(o.missingMachines())+len(o.heldGroups()) > 0 {
		since := resumeRecord(o).ResumeStartedAt.Time
		p.CloudInterval = cloudInterval(since, o.Now)
		if o.Refusal != nil {
			p.RetryAfter = refusalRest(o.Refusal.Class, since, o.Now)
		}
	}
	released := o.groupsToRelease()
	mayRelease := slices.ContainsFunc(released, func(c actuator.GroupChange) bool { return !o.isRefused(c.Name) })
	switch {
	case mayRelease:
		p.Do = ReleaseGroups{Changes: released}
		p.RequeueAfter = o.untilSeen(released, p.RequeueAfter)
	case o.mayStartOverdueWorkers():
		p.Do = StartMachines{IDs: stopped}
	case len(o.Approvable) > 0:
		// The cluster is probed soon to observe its reaction to the approvals.
		p.Do, p.ProbeInterval = ApproveRequests{Requests: o.Approvable}, minProbeInterval
	case len(replaced) > 0 && !o.IsReplacementResting:
		p.Do, p.ProbeInterval = ReplaceMachines{Machines: replaced[:min(len(replaced), maxReplacementsPerPass)]}, minProbeInterval
	case mayStart && slices.ContainsFunc(stopped, func(id string) bool { return !o.isRefused(id) }):
		p.Do = StartMachines{IDs: stopped}
	case len(o.nodesToUncordon()) > 0 && o.API == Reachable && !o.IsCordonResting:
		p.Do = UncordonNodes{Nodes: o.nodesToUncordon()}
	case mayStart:
		p.Do = StartMachines{IDs: stopped}
	case len(released) > 0:
		p.Do = ReleaseGroups{Changes: released}
	}
	if o.ApprovalError != "" {
		p.Ready, p.ProbeInterval = decision.False(hivev1.FailedToApproveReason, o.ApprovalError), maxCloudInterval
	}
	return p
}

// awaitAPI restores groups that were scaled to zero. The API server may need their machines, for example after a
// cancelled hibernation whose other machines never stopped.
func awaitAPI(o Observed) Plan {
	message := "The machines run; waiting for the API server to answer" + o.apiProblem()
	if scaled := o.heldScaledGroups(); len(scaled) > 0 {
		message += "; machine groups that are not restored to their state before the hibernation: " + joinNames(o.withNotes(scaled))
		if o.Refusal != nil {
			message += "; " + o.Refusal.Message
		}
	}
	p := resumingPlan(o, decision.False(hivev1.WaitingForAPIReason, message))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, o.resumeProbeInterval()
	return o.withAction(p)
}

func (o Observed) resumeProbeInterval() time.Duration {
	if o.IsAPICostly {
		return maxCloudInterval
	}
	return probeInterval(resumeRecord(o).ResumeStartedAt.Time, o.Now)
}

// apiProblem returns a note about why the API server does not respond, once it should have started.
func (o Observed) apiProblem() string {
	if o.APIMessage == "" || !o.IsAPICostly && !o.IsAPIProblemLasting && o.Now.Sub(resumeRecord(o).ResumeStartedAt.Time) <= lateAfter {
		return ""
	}
	return ": " + o.APIMessage
}

func awaitNodes(o Observed) Plan {
	var awaited []string
	if missing := o.missingNodes(); len(missing) > 0 {
		awaited = append(awaited, fmt.Sprintf("nodes to be ready and to report after the start of the machines: %s%s", joinNames(missing), o.approvalProblem()))
	}
	if o.awaitsReplacement() {
		awaited = append(awaited, o.replacementNote())
	}
	p := resumingPlan(o, decision.False(hivev1.WaitingForNodesReason, "Waiting for "+strings.Join(awaited, "; for ")))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, o.resumeProbeInterval()
	return o.withAction(p)
}

func clusterRuns(o Observed) Plan {
	p := Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, "The cluster runs"),
		Ready:        decision.True(hivev1.RunningHibernationReason, "The cluster runs and its API server answers"),
		Unreachable:  reachableCondition(),
		Record:       o.Record,
		RequeueAfter: driftInterval,
	}
	if o.hasNotResumed() {
		p.Record = resumeRecord(o).DeepCopy()
		p.Record.ResumedAt = new(metav1.NewTime(o.Now))
		p.ProbeInterval = minAftercareInterval
	}
	if o.isInAftercare() {
		p.ProbeInterval = aftercareInterval(o.Record.ResumedAt.Time, o.Now)
	}
	p.Degraded = o.unconfirmedCondition(o.operatorsCondition())
	p.Ready.Message += o.endedStopNote() + o.timerNote(p.Record) + o.cordonNote() + o.Options.ignoredNote()
	return o.withAction(p)
}

// clusterRunsInPart leaves the resume unfinished, so missing machines are still started, and certificate requests of
// missing nodes are still approved.
func clusterRunsInPart(o Observed) Plan {
	p := Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, "The cluster runs"),
		Ready:        decision.True(hivev1.RunningHibernationReason, "The API server answers, but parts of the cluster are not running"),
		Unreachable:  reachableCondition(),
		Degraded:     decision.True(o.partialReason(), o.partialMessage()),
		Record:       o.Record,
		RequeueAfter: retryInterval,
	}
	if o.Now.Before(ApprovalsUntil(o.Record)) {
		p.ProbeInterval = maxCloudInterval
	}
	if o.isResuming() && o.Record.ReadyInPartAt == nil {
		p.Record = o.Record.DeepCopy()
		p.Record.ReadyInPartAt = new(metav1.NewTime(o.Now))
	}
	return o.withAction(p)
}

// partialReason returns the reason of the Degraded condition for a cluster that runs in part; empty if nothing is
// missing.
func (o Observed) partialReason() string {
	switch {
	case o.NoActuator == "" && len(o.missingMachines())+len(o.heldGroups()) > 0, o.awaitsReplacement():
		return hivev1.MachinesMissingReason
	case o.isResuming() && len(o.missingNodes()) > 0:
		return hivev1.NodesMissingReason
	default:
		return ""
	}
}

func (o Observed) partialMessage() string {
	var parts []string
	if ids := o.missingMachines(); len(ids) > 0 && o.NoActuator == "" {
		parts = append(parts, "machines that do not run: "+o.machineNames(ids))
	}
	if held := o.heldGroups(); len(held) > 0 && o.NoActuator == "" {
		parts = append(parts, "machine groups that are not restored to their state before the hibernation: "+joinNames(o.withNotes(held)))
	}
	if o.Refusal != nil {
		parts = append(parts, o.Refusal.Message)
	}
	if o.awaitsReplacement() {
		parts = append(parts, o.replacementNote())
	}
	if o.isResuming() {
		if missing := o.missingNodes(); len(missing) > 0 {
			parts = append(parts, "nodes that are not ready, or have not reported since the resume began: "+joinNames(missing)+o.approvalProblem())
		}
	}
	return "Parts of the cluster are missing; " + strings.Join(parts, "; ")
}

func clusterUnreachable(o Observed) Plan {
	return o.withAction(Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, "The cluster should run"),
		Ready:        decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage),
		Unreachable:  decision.True(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:       o.Record,
		RequeueAfter: driftInterval, ProbeInterval: retryInterval,
	})
}

// resumingPlan returns the plan for a cluster that should run and does not run yet. Either the cluster hibernated, or
// all its machines were stopped outside Torpor. The second case is recorded as a resume that is a repair.
func resumingPlan(o Observed, ready decision.Condition) Plan {
	p := Plan{
		Hibernating: decision.True(hivev1.ResumingHibernationReason, "The cluster is being resumed"),
		Ready:       ready,
		Unreachable: decision.True(hivev1.ClusterAsleepReason, "The cluster is resuming and does not answer yet"),
		Record:      resumeRecord(o),
	}
	if o.API == Reachable {
		p.Unreachable = reachableCondition()
	}
	return p
}

func startingCondition(o Observed) decision.Condition {
	if o.Refusal != nil && o.anyMachineIs(actuator.Stopped) {
		return decision.False(hivev1.FailedToStartMachinesReason, o.Refusal.Message)
	}
	if o.Now.Sub(resumeRecord(o).ResumeStartedAt.Time) > lateAfter {
		return decision.False(hivev1.WaitingForMachinesReason, fmt.Sprintf("Waiting for %s to start%s", o.machineNames(o.missingMachines()), o.startOrderNote()))
	}
	if len(o.Machines) == 0 {
		return decision.False(hivev1.StartingMachinesReason, "Waiting for machine groups to launch their machines: "+joinNames(o.withNotes(o.heldGroups())))
	}
	return decision.False(hivev1.StartingMachinesReason, fmt.Sprintf("Starting the cluster's %d machines%s", len(o.Machines), o.startOrderNote()))
}

// stalledCondition reports a hibernation or a resume that does not finish, and the step that blocks it.
func (o Observed) stalledCondition(p Plan) decision.Condition {
	var since time.Time
	switch {
	case p.Hibernating.Reason == hivev1.StoppingHibernationReason && o.isHibernationOpen() && !o.isDraining():
		since = o.stopBeganAt()
	case p.Hibernating.Reason == hivev1.ResumingHibernationReason:
		since = p.Record.ResumeStartedAt.Time
	default:
		return decision.Condition{}
	}
	isRefusedForGood := p.Ready.Reason == hivev1.FailedToStopReason && isLastingRefusal(o.Refusal.Class)
	if o.Now.Sub(since) <= stalledAfter && !isRefusedForGood {
		return decision.Condition{}
	}
	return decision.True(p.Ready.Reason, p.Ready.Message)
}

func reachableCondition() decision.Condition {
	return decision.False(hivev1.ClusterReachableReason, "The API server answers")
}

// resumeRecord returns the record with the start of the resume.
func resumeRecord(o Observed) *hivev1.HibernationRecord {
	if o.isResuming() {
		return o.Record
	}
	record := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now)}
	if o.Record != nil {
		record = o.Record.DeepCopy()
	}
	record.ResumedAt, record.ReadyInPartAt = nil, nil
	if o.isInAftercare() {
		return record
	}
	// Invariant: a repair approves no certificate request, so an attacker gets no certificate by powering off a machine
	// (TestApprovalsFollowTheHibernationRecord).
	record.Repair = !o.isHibernationOpen()
	switch {
	case record.Repair:
		record.AsleepAt = nil
	case record.AsleepAt == nil && o.allMachinesAre(actuator.Stopped):
		record.AsleepAt = new(metav1.NewTime(o.Now))
	}
	// The API stores whole seconds. A time that is rounded down lies before now, so a heartbeat from before the
	// resume would count.
	record.ResumeStartedAt = new(metav1.NewTime(o.Now.Truncate(time.Second).Add(time.Second)))
	return record
}

// missingNodes returns the awaited nodes that are not ready, or have not reported since the resume began. In a cluster
// without nodes, it returns "any node".
func (o Observed) missingNodes() []string {
	if len(o.Nodes) == 0 {
		return []string{"any node"}
	}
	record := resumeRecord(o)
	var names []string
	for _, node := range o.awaitedNodes() {
		// A Node object keeps its Ready condition while its machine is off, so Ready alone is not a sign of life.
		if !node.Ready || !HasReported(record, node) {
			names = append(names, node.Name)
		}
	}
	return names
}

// awaitedNodes returns the nodes that were ready when the cluster hibernated and still exist. If there are none, it
// returns all nodes.
func (o Observed) awaitedNodes() []ObservedNode {
	wasReady := map[string]bool{}
	for _, node := range o.Record.Nodes {
		wasReady[node.Name] = node.Ready
	}
	nodes := slices.DeleteFunc(slices.Clone(o.Nodes), func(n ObservedNode) bool { return !wasReady[n.Name] })
	if len(nodes) == 0 {
		return o.Nodes
	}
	return nodes
}
