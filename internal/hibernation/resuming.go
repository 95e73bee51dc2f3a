// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The plans of a cluster that should run.

// recordResume only writes status; the machines are started by the next pass. Nodes ask for certificates as soon as they are
// on, and if the manager died before it had noted the time, its successor would hold their requests for older than the wake-up.
func recordResume(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.After = immediately
	return p
}

func startMachines(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.Do = StartMachines{IDs: o.machineIDs(actuator.Stopped)}
	p.After = minCloudInterval
	return p
}

func awaitStarted(o Observed) Plan {
	p := resumingPlan(o, startingCondition(o))
	p.After = cloudInterval(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

func awaitAPI(o Observed) Plan {
	p := resumingPlan(o, isFalse(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer"))
	p.After = probeInterval(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

func awaitNodes(o Observed) Plan {
	p := resumingPlan(o, isFalse(hivev1.WaitingForNodesReason, fmt.Sprintf("Waiting for nodes to report since the machines were started: %s", joinNames(o.missingNodes()))))
	p.Unreachable = reachableCondition()
	p.After = probeInterval(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

// approveRequests leaves the conditions as the next rules would: the approvals themselves are told by events.
func approveRequests(o Observed) Plan {
	requests := o.Approvable
	o.Approvable = nil
	p := Decide(o)
	p.Do, p.After = ApproveRequests{Requests: requests}, immediately
	return p
}

func clusterRuns(o Observed) Plan {
	p := Plan{
		Hibernating: isFalse(hivev1.RunningHibernationReason, "The cluster runs"),
		Ready:       isTrue(hivev1.RunningHibernationReason, "The cluster runs and answers"),
		Unreachable: reachableCondition(),
		Record:      o.Record,
		After:       driftInterval,
	}
	if o.isResumeUnfinished() {
		p.Record = resumeRecord(o).DeepCopy()
		p.Record.ResumedAt = new(metav1.NewTime(o.Now))
		p.After = minAftercareInterval
	}
	if o.isInAftercare() {
		p.After = aftercareInterval(o.Record.ResumedAt.Time, o.Now)
	}
	return p
}

func clusterUnreachable(o Observed) Plan {
	return Plan{
		Hibernating: isFalse(hivev1.RunningHibernationReason, "The cluster should run"),
		Ready:       isFalse(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage),
		Unreachable: isTrue(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:      o.Record,
		After:       retryInterval,
	}
}

// resumingPlan is the plan of a cluster whose machines do not all run although they should: it slept, or a machine was
// stopped by somebody else, which is mended as a resume of its own.
func resumingPlan(o Observed, ready Condition) Plan {
	return Plan{
		Hibernating: isTrue(hivev1.ResumingHibernationReason, "The cluster is being resumed"),
		Ready:       ready,
		Unreachable: isTrue(hivev1.ClusterAsleepReason, "The cluster is waking and does not answer yet"),
		Record:      resumeRecord(o),
	}
}

func startingCondition(o Observed) Condition {
	r := resumeRecord(o)
	if o.Now.Sub(r.ResumeStartedAt.Time) > lateAfter {
		left := o.machineIDs(actuator.Stopped, actuator.Stopping, actuator.Starting)
		return isFalse(hivev1.WaitingForMachinesReason, fmt.Sprintf("Waiting for %s to start", o.machineNames(left)))
	}
	return isFalse(hivev1.StartingMachinesReason, fmt.Sprintf("Starting the cluster's %d machines", len(o.Machines)))
}

func reachableCondition() Condition {
	return isFalse(hivev1.ClusterReachableReason, "The API server answers")
}

// resumeRecord notes when the resume began. The time is rounded up to the next second, because the API keeps only seconds
// and nothing from before may count.
func resumeRecord(o Observed) *hivev1.HibernationRecord {
	if o.isResumeRecorded() {
		return o.Record
	}
	r := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now)}
	if o.Record != nil {
		r = o.Record.DeepCopy()
	}
	r.ResumedAt = nil
	r.ResumeStartedAt = new(metav1.NewTime(o.Now.Truncate(time.Second).Add(time.Second)))
	return r
}

// missingNodes are the awaited nodes that have not been seen ready since the cluster was woken; there must be one at all.
// A Ready from before the sleep is no sign of life.
func (o Observed) missingNodes() []string {
	if len(o.Nodes) == 0 {
		return []string{"any node"}
	}
	since := resumeRecord(o).ResumeStartedAt.Time
	var names []string
	for _, n := range o.awaitedNodes() {
		if !n.Ready || !n.LastSeen.After(since) {
			names = append(names, n.Name)
		}
	}
	return names
}

// awaitedNodes are the nodes that were ready when the cluster went to sleep and still exist; if there are none, every node.
func (o Observed) awaitedNodes() []ObservedNode {
	wasReady := map[string]bool{}
	for _, n := range o.Record.Nodes {
		wasReady[n.Name] = n.Ready
	}
	nodes := slices.DeleteFunc(slices.Clone(o.Nodes), func(n ObservedNode) bool { return !wasReady[n.Name] })
	if len(nodes) == 0 {
		return o.Nodes
	}
	return nodes
}
