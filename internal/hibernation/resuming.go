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

// The plans of a cluster that should run.

// recordResume only writes status; the machines are started by the next pass. Nodes ask for certificates as soon as they
// are on, and if the manager died before it had noted the time, its successor would take their requests for older than the
// resume.
func recordResume(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.RequeueAfter = immediately
	return p
}

func startMachines(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.Do = StartMachines{IDs: o.machineIDs(actuator.Stopped)}
	p.RequeueAfter, p.AwaitsMachines = minCloudInterval, true
	return p
}

func awaitStarted(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.RequeueAfter, p.AwaitsMachines = cloudInterval(p.Record.ResumeStartedAt.Time, o.Now), true
	return p
}

func awaitAPI(o Observed) Plan {
	p := resumingPlan(o, decision.False(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer"+o.apiProblem()))
	p.RequeueAfter = o.resumeProbeInterval()
	return p
}

func (o Observed) resumeProbeInterval() time.Duration {
	if o.IsAPICostly {
		return maxCloudInterval
	}
	return probeInterval(resumeRecord(o).ResumeStartedAt.Time, o.Now)
}

// apiProblem says why the API server is silent once it should have come up; before, it is silent because it starts.
func (o Observed) apiProblem() string {
	if o.APIMessage == "" || !o.IsAPICostly && !o.IsAPIProblemLasting && o.Now.Sub(resumeRecord(o).ResumeStartedAt.Time) <= lateAfter {
		return ""
	}
	return ": " + o.APIMessage
}

func awaitNodes(o Observed) Plan {
	p := resumingPlan(o, decision.False(hivev1.WaitingForNodesReason,
		fmt.Sprintf("Waiting for nodes to report since the machines were started: %s%s", joinNames(o.missingNodes()), o.approvalProblem())))
	p.Unreachable = reachableCondition()
	p.RequeueAfter = o.resumeProbeInterval()
	return p
}

// approveRequests leaves the conditions as the next rules would: the approvals themselves are reported by events.
func approveRequests(o Observed) Plan {
	requests := o.Approvable
	o.Approvable = nil
	p := Decide(o)
	// The cluster gets a moment to show what came of the approvals.
	p.Do, p.RequeueAfter = ApproveRequests{Requests: requests}, minProbeInterval
	return p
}

func clusterRuns(o Observed) Plan {
	p := Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, "The cluster runs"),
		Ready:        decision.True(hivev1.RunningHibernationReason, "The cluster runs and answers"),
		Unreachable:  reachableCondition(),
		Record:       o.Record,
		RequeueAfter: driftInterval,
	}
	if o.hasNotResumed() {
		p.Record = resumeRecord(o).DeepCopy()
		p.Record.ResumedAt = new(metav1.NewTime(o.Now))
		p.RequeueAfter = minAftercareInterval
	}
	if o.isInAftercare() {
		p.RequeueAfter = aftercareInterval(o.Record.ResumedAt.Time, o.Now)
	}
	return p
}

func clusterUnreachable(o Observed) Plan {
	return Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, "The cluster should run"),
		Ready:        decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage),
		Unreachable:  decision.True(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:       o.Record,
		RequeueAfter: retryInterval,
	}
}

// resumingPlan is for a cluster whose machines do not all run although they should: it hibernated, or something else
// stopped a machine, which is mended as a resume of its own.
func resumingPlan(o Observed, ready decision.Condition) Plan {
	return Plan{
		Hibernating: decision.True(hivev1.ResumingHibernationReason, "The cluster is being resumed"),
		Ready:       ready,
		Unreachable: decision.True(hivev1.ClusterAsleepReason, "The cluster is waking and does not answer yet"),
		Record:      resumeRecord(o),
	}
}

func startingCondition(o Observed) decision.Condition {
	record := resumeRecord(o)
	if o.Now.Sub(record.ResumeStartedAt.Time) > lateAfter {
		pending := o.machineIDs(actuator.Stopped, actuator.Stopping, actuator.Starting)
		return decision.False(hivev1.WaitingForMachinesReason, fmt.Sprintf("Waiting for %s to start", o.machineNames(pending)))
	}
	return decision.False(hivev1.StartingMachinesReason, fmt.Sprintf("Starting the cluster's %d machines", len(o.Machines)))
}

func reachableCondition() decision.Condition {
	return decision.False(hivev1.ClusterReachableReason, "The API server answers")
}

// resumeRecord notes when the resume began.
func resumeRecord(o Observed) *hivev1.HibernationRecord {
	if o.isResuming() {
		return o.Record
	}
	record := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now)}
	if o.Record != nil {
		record = o.Record.DeepCopy()
	}
	record.ResumedAt = nil
	// Whoever can power one machine off must not get certificates approved by that.
	record.Repair = !o.isHibernationOpen()
	switch {
	case record.Repair:
		record.AsleepAt = nil
	case record.AsleepAt == nil && o.allMachinesAre(actuator.Stopped):
		record.AsleepAt = new(metav1.NewTime(o.Now))
	}
	// The API keeps whole seconds. Rounded down, the time would lie before now, and a heartbeat from before the resume
	// would count.
	record.ResumeStartedAt = new(metav1.NewTime(o.Now.Truncate(time.Second).Add(time.Second)))
	return record
}

// missingNodes returns the awaited nodes that have not been seen ready since the resume began; there must be one at all.
func (o Observed) missingNodes() []string {
	if len(o.Nodes) == 0 {
		return []string{"any node"}
	}
	record := resumeRecord(o)
	var names []string
	for _, node := range o.awaitedNodes() {
		// A Node object keeps its Ready condition while its machine is off, so Ready alone is no sign of life.
		if !node.Ready || !HasReported(record, node) {
			names = append(names, node.Name)
		}
	}
	return names
}

// awaitedNodes returns the nodes that were ready when the cluster hibernated and still exist; if there are none, every node.
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
