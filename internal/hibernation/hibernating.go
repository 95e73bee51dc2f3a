// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The plans of a cluster that should sleep.

func clusterHibernates(o Observed) Plan {
	p := hibernatedPlan(o, hivev1.HibernatingHibernationReason, "Every machine is stopped")
	p.Ready = isFalse(hivev1.HibernatingHibernationReason, "The cluster hibernates")
	p.After = driftInterval
	return p
}

// awaitNodeRecord gives an API server that stumbles some time: a cluster that sleeps without its nodes written down may need
// a human at the wake-up.
func awaitNodeRecord(o Observed) Plan {
	return Plan{
		Hibernating: isTrue(hivev1.StoppingHibernationReason, "The machines are about to be stopped"),
		Ready:       isFalse(hivev1.RecordingNodesReason, "Waiting for the API server, to write the nodes down before the stop: "+o.APIMessage),
		Unreachable: isTrue(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:      o.Record,
		After:       minCloudInterval,
	}
}

// recordNodes only writes status; the machines are stopped by the next pass, when the record is safe.
func recordNodes(o Observed) Plan {
	p := stoppingPlan(o)
	p.After = immediately
	return p
}

func stopMachines(o Observed) Plan {
	p := stoppingPlan(o)
	p.Do = StopMachines{IDs: o.machineIDs(actuator.Running)}
	p.After = minCloudInterval
	return p
}

func awaitStopped(o Observed) Plan {
	p := stoppingPlan(o)
	p.After = cloudInterval(o.Record.SleepStartedAt.Time, o.Now)
	return p
}

func stoppingPlan(o Observed) Plan {
	p := hibernatedPlan(o, hivev1.StoppingHibernationReason, "The machines are being stopped")
	p.Ready = stoppingCondition(o)
	return p
}

func hibernatedPlan(o Observed, reason, message string) Plan {
	return Plan{
		Hibernating: isTrue(reason, message),
		Unreachable: isTrue(hivev1.ClusterAsleepReason, "The cluster is put to sleep and is not dialled"),
		Record:      hibernationRecord(o),
	}
}

// stoppingCondition names the machines only once they are late: a message that changes with every machine is a write each.
func stoppingCondition(o Observed) Condition {
	left := o.machineIDs(actuator.Running, actuator.Stopping, actuator.Starting)
	if o.isHibernationRecorded() && o.Now.Sub(o.Record.SleepStartedAt.Time) > lateAfter {
		return isFalse(hivev1.WaitingForMachinesToStopReason, fmt.Sprintf("Waiting for %s to stop", o.machineNames(left)))
	}
	return isFalse(hivev1.StoppingMachinesReason, fmt.Sprintf("Stopping the cluster's %d machines%s", len(o.Machines), o.unrecordedNodesWarning()))
}

// unrecordedNodesWarning warns while it can still be cancelled: without recorded nodes, and without OpenShift Machines,
// nobody can judge certificate requests at the wake-up.
func (o Observed) unrecordedNodesWarning() string {
	r := hibernationRecord(o)
	if len(r.Nodes) > 0 {
		return ""
	}
	return "; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up"
}

// hibernationRecord keeps an open record and opens one otherwise. Nodes that could not be listed are taken from the last sleep.
// A resume that is cancelled leaves to the next one the nodes that it awaited: they are not ready only because they slept.
func hibernationRecord(o Observed) *hivev1.HibernationRecord {
	if o.isHibernationRecorded() {
		return o.Record
	}
	r := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now), RequestedBy: o.RequestedBy}
	var awaited []ObservedNode
	if o.isResumeUnfinished() {
		awaited = o.awaitedNodes()
	}
	for _, n := range o.Nodes {
		n.Ready = n.Ready || slices.ContainsFunc(awaited, func(a ObservedNode) bool { return a.Name == n.Name })
		r.Nodes = append(r.Nodes, n.RecordedNode)
	}
	if len(r.Nodes) == 0 && o.Record != nil {
		r.Nodes = o.Record.Nodes
	}
	return r
}
