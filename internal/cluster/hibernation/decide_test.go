// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const wantHibernating = hivev1.PowerStateHibernating

// expectedPlan contains the values that most rows compare: the rule, the action, and the reasons of Hibernating and
// Ready.
type expectedPlan struct {
	Rule               string
	Do                 Action
	Hibernating, Ready string
	// RequeueAfter is the time until the next pass or the next probe, whichever is sooner.
	RequeueAfter time.Duration
}

func TestDecide(t *testing.T) {
	stopping, starting := hivev1.StoppingHibernationReason, hivev1.ResumingHibernationReason
	running, asleep := hivev1.RunningHibernationReason, hivev1.HibernatingHibernationReason
	unknown := func(rule, reason string, after time.Duration) expectedPlan {
		return expectedPlan{rule, NoAction{}, reason, reason, after}
	}
	unsupported := expectedPlan{"requested hibernation not supported", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, driftInterval}
	optedOut := func(api APIState) func(*Observed) {
		return func(o *Observed) { o.NoActuator, o.IsInfraDisabled, o.API, o.APIMessage = "x", true, api, "y" }
	}
	optOut := func(hibernating, ready string, after time.Duration) expectedPlan {
		return expectedPlan{"infrastructure disabled", NoAction{}, hibernating, ready, after}
	}
	stop := func(ids ...string) expectedPlan {
		return expectedPlan{"stop machines", StopMachines{IDs: ids}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	}
	start := func(ids ...string) expectedPlan {
		return expectedPlan{"machines are starting", StartMachines{ids}, starting, hivev1.StartingMachinesReason, machineWaitInterval}
	}
	waitStart := expectedPlan{"machines are starting", NoAction{}, starting, hivev1.StartingMachinesReason, machineWaitInterval}
	followStart := expectedPlan{"machines are starting", NoAction{}, starting, hivev1.StartingMachinesReason, minProbeInterval}
	waitStop := expectedPlan{"machines are stopping", NoAction{}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	writeNodes := expectedPlan{"record nodes", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately}
	awaitSync := func(after time.Duration) expectedPlan {
		return expectedPlan{"SyncSets not applied yet", NoAction{}, hivev1.SyncSetsNotAppliedReason, running, after}
	}
	writeResume := expectedPlan{"record resume start", NoAction{}, starting, hivev1.StartingMachinesReason, immediately}
	hibernates := expectedPlan{"hibernating", NoAction{}, asleep, asleep, closeLookWindow}
	inPart := func(do Action, after time.Duration) expectedPlan {
		return expectedPlan{"running in part", do, running, running, after}
	}
	noCapacity := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room for i-1"}, []string{"i-1"}}
	}
	runs := func(after time.Duration) expectedPlan {
		return expectedPlan{"running", NoAction{}, running, running, after}
	}
	unreachable := expectedPlan{"running, API server not reachable", NoAction{}, running, hivev1.APIUnreachableReason, retryInterval}
	waitAPI := expectedPlan{"resuming, API server not reachable", NoAction{}, starting, hivev1.WaitingForAPIReason, minProbeInterval}
	waitNodes := expectedPlan{"resuming, nodes have not reported", NoAction{}, starting, hivev1.WaitingForNodesReason, minProbeInterval}

	waitOperators := expectedPlan{"resuming, operators not ready", NoAction{}, starting, hivev1.WaitingForClusterOperatorsReason, operatorInterval}

	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"new cluster is left on until its SyncSets are applied":                     {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Minute)), awaitSync(firstSyncInterval)},
		"last second of the wait for SyncSets requeues after the shortest interval": {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Second)), awaitSync(minCloudInterval)},
		"new cluster hibernates after the maximum wait for SyncSets":                {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(0)), writeNodes},
		"unreachable cluster does not wait for SyncSets":                            {observedCluster(wantHibernating, nil, on, syncAwaited(time.Minute), func(o *Observed) { o.API = Unreachable }), writeNodes},
		"cluster that has hibernated does not wait for SyncSets":                    {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(), syncAwaited(time.Minute)), writeNodes},
		"running cluster does not wait for SyncSets":                                {observedCluster(hivev1.PowerStateRunning, nil, on, apiWithNodes(), syncAwaited(time.Minute)), runs(driftInterval)},
		"deleted cluster is not changed":                                            {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Deleted = true }), unknown("ClusterDeployment is being deleted", hivev1.DeletedReason, 0)},
		"deletion has precedence over every other observation": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) {
				o.Deleted, o.Paused, o.Installed, o.Invalid, o.NoActuator, o.Incompatible, o.ObservationError = true, true, false, "x", "x", "x", throttledError()
			}), unknown("ClusterDeployment is being deleted", hivev1.DeletedReason, 0),
		},
		"paused cluster is not changed": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Paused, o.Installed = true, false }), unknown("power management is paused", hivev1.PausedReason, driftInterval)},
		"cluster that is being installed is not changed": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Installed, o.Invalid = false, "x" }), unknown("not installed", hivev1.NotInstalledReason, 0),
		},
		"missing field of the spec has precedence over a missing actuator": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Invalid, o.NoActuator = "x", "x" }), unknown("invalid spec", hivev1.InvalidSpecReason, 0),
		},

		"opted-out cluster is not stopped":             {observedCluster(wantHibernating, nil, on, optedOut(Reachable)), optOut(hivev1.UnsupportedHibernationReason, running, driftInterval)},
		"opted-out cluster is not started":             {observedCluster("", openRecord(), off, optedOut(Reachable)), optOut(running, running, driftInterval)},
		"opted-out unreachable cluster is not started": {observedCluster("", nil, off, optedOut(Unreachable)), optOut(running, hivev1.APIUnreachableReason, retryInterval)},
		"opted-out resuming cluster is not started":    {observedCluster("", resumingRecord(time.Minute), off, optedOut(Reachable)), optOut(running, running, driftInterval)},
		"opted-out draining cluster is not stopped":    {observedCluster(wantHibernating, &hivev1.HibernationRecord{Drain: &hivev1.DrainRecord{}}, on, optedOut(Reachable)), optOut(hivev1.UnsupportedHibernationReason, running, driftInterval)},
		"opted-out cluster without kubeconfig is not changed": {
			observedCluster("", nil, "", optedOut(NotProbed), func(o *Observed) { o.Invalid = "x" }), optOut(running, hivev1.InvalidSpecReason, driftInterval),
		},
		"pause has precedence over an opt-out": {
			observedCluster("", nil, "", optedOut(NotProbed), func(o *Observed) { o.Paused = true }), unknown("power management is paused", hivev1.PausedReason, driftInterval),
		},

		"cluster on a platform without an actuator cannot hibernate":                    {observedCluster(wantHibernating, nil, "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"hibernating cluster on a platform without an actuator can no longer hibernate": {observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"cluster on a platform without an actuator runs if its API server responds": {
			observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), runs(driftInterval),
		},
		"unreachable cluster on a platform without an actuator is reported as unreachable": {observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API, o.APIMessage = "x", Unreachable, "x" }), unreachable},
		"cluster with a version that is too old cannot hibernate despite a cloud error": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible, o.ObservationError = "x", throttledError() }), unsupported,
		},
		"stopped cluster with a version that is too old counts as hibernating": {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"partly stopped cluster with a version that is too old cannot hibernate": {
			observedCluster(wantHibernating, nil, off, secondMachine(on), func(o *Observed) { o.Incompatible = "x" }), unsupported,
		},
		"running cluster with a version that is too old keeps running": {
			observedCluster("", nil, on, func(o *Observed) { o.Incompatible, o.API = "x", Reachable }), runs(driftInterval),
		},
		"hibernating cluster with a version that is too old keeps hibernating": {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"resume can be cancelled although the version is too old":              {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.Incompatible, o.API = "x", Unreachable }), writeNodes},
		"recorded hibernation continues although the version is too old":       {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.Incompatible = "x" }), stop("i-0", "i-1")},

		"observation error has precedence over a hibernation":                           {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), unknown("machines not observed", hivev1.CloudThrottledReason, maxCloudInterval)},
		"cluster without machines is not reported as hibernating":                       {observedCluster(wantHibernating, openRecord(), ""), unknown("no machines found", hivev1.NoMachinesFoundReason, retryInterval)},
		"cluster without machines is not reported as running":                           {observedCluster("", nil, ""), unknown("no machines found", hivev1.NoMachinesFoundReason, retryInterval)},
		"cluster with stopped machines and a hibernation record counts as hibernating":  {observedCluster(wantHibernating, openRecord(), off), hibernates},
		"cluster with stopped machines and no hibernation record counts as hibernating": {observedCluster(wantHibernating, nil, off), hibernates},

		"nodes are recorded before any machine is stopped":              {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"))), writeNodes},
		"empty node record is saved if the API server does not respond": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API = Unreachable }), writeNodes},
		"nodes are recorded again after an earlier hibernation":         {observedCluster(wantHibernating, resumedRecord(time.Hour), on), writeNodes},
		"nodes are recorded again when a resume is cancelled":           {observedCluster(wantHibernating, resumingRecord(time.Minute), goingOn), writeNodes},
		"running machines are stopped once the nodes are recorded":      {observedCluster(wantHibernating, openRecord(), on), stop("i-0", "i-1")},
		"second machine that is stopping is not stopped again":          {observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOff)), stop("i-0")},
		"starting machine is awaited before it is stopped":              {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOn)), waitStop},
		"machine that is off and billed is stopped before the cluster counts as hibernating": {
			observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), stop("i-1"),
		},
		"machine that is off and billed is started": {
			observedCluster("Running", resumingRecord(time.Second), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), start("i-0", "i-1"),
		},
		"cluster with a stopping machine does not count as hibernating": {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOff)), waitStop},

		"resume is recorded before any machine is started":                              {observedCluster("Running", openRecord(), off), writeResume},
		"resume is recorded if another party stopped all machines of a resumed cluster": {observedCluster("", resumedRecord(time.Hour), off), writeResume},
		"resume is recorded if all machines are off without a hibernation record":       {observedCluster("", nil, off), writeResume},
		"machines are started once the resume is recorded":                              {observedCluster("", resumingRecord(time.Second), off), start("i-0", "i-1")},
		"starting machine is awaited": {
			observedCluster("", resumingRecord(time.Second), goingOn), waitStart,
		},
		"stopped machine is started, and the running one is not": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off)),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.StartingMachinesReason, minProbeInterval},
		},
		"API server is probed while the second machine starts": {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn), apiWithNodes(readyNode("n0"), staleNode("n1"))), followStart},

		"machine stopped by a user is started while the cluster keeps running": {
			observedCluster("", nil, on, secondMachine(off), apiWithNodes()), inPart(StartMachines{[]string{"i-1"}}, retryInterval),
		},
		"stopping machine is awaited while another one runs": {observedCluster("", nil, on, secondMachine(goingOff), apiWithNodes()), inPart(NoAction{}, retryInterval)},
		"machine stopped by a user is started while the API server is unreachable": {
			observedCluster("", nil, on, secondMachine(off), func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"running, API server not reachable", StartMachines{[]string{"i-1"}}, running, hivev1.APIUnreachableReason, retryInterval},
		},
		"machine without capacity does not delay certificates of nodes": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(staleNode("n0"), staleNode("n1")), withRequests("csr-0")),
			expectedPlan{"machines are starting", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.FailedToStartMachinesReason, minProbeInterval},
		},
		"machine without capacity is awaited for up to ten minutes if its node is missing": {
			observedCluster("", resumingRecord(partialResumeAfter-time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"machine without capacity is no longer awaited after ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"machine without capacity is awaited if all machines are required": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1")),
				func(o *Observed) { o.AwaitsAllMachines = true }),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"machine without capacity is not awaited if no node is missing": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), readyNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"node that does not come back is no longer awaited after ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), inPart(NoAction{}, maxCloudInterval),
		},
		"nodes are awaited even after ten minutes if none of them has reported": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(staleNode("n0"), staleNode("n1"))),
			expectedPlan{"resuming, nodes have not reported", NoAction{}, starting, hivev1.WaitingForNodesReason, maxCloudInterval},
		},
		"machine that cannot be stopped is reported": {
			observedCluster(wantHibernating, openRecord(), on, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.Other, "Protected"}, []string{"i-0", "i-1"}}
			}),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.FailedToStopReason, retryInterval},
		},

		"API server of a resuming cluster is awaited":                  {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.API = Unreachable }), waitAPI},
		"unreachable API server of a running cluster is reported":      {observedCluster("", resumedRecord(time.Minute), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), unreachable},
		"hibernated cluster with running machines waits for its nodes": {observedCluster("", openRecord(), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), waitNodes},
		"hibernation waits for an unreachable API server to record the nodes": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow+time.Second) }),
			expectedPlan{"waiting to record nodes", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"hibernation waits for an unreachable API server for a limited time": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow) }), writeNodes},
		"hibernation waits for an unreachable API server even with recorded nodes of the last hibernation": {
			observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }),
			expectedPlan{"waiting to record nodes", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"hibernation that cancels a resume does not wait for an unreachable API server": {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }), writeNodes},
		"starting machine does not count as a resume while another machine runs":        {observedCluster("", nil, on, secondMachine(goingOn), apiWithNodes()), runs(driftInterval)},
		"starting machine of a resuming cluster is awaited":                             {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn)), followStart},
		"cluster with a machine of a group cannot hibernate": {
			observedCluster(wantHibernating, nil, on, machineOfGroup(1), apiWithNodes(readyNode("n0"))),
			expectedPlan{"requested hibernation not supported", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.RunningHibernationReason, driftInterval},
		},
		"hibernation ends with Unsupported after a group has replaced a machine": {
			observedCluster(wantHibernating, openRecord(), off, secondMachine(on), machineOfGroup(1)),
			expectedPlan{"requested hibernation not supported", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, driftInterval},
		},
		"resuming cluster waits for its nodes": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), waitNodes},
		"resuming OpenShift cluster waits for an operator that has not reported": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)), waitOperators,
		},
		"resuming OpenShift cluster waits for a degraded operator": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), waitOperators,
		},
		"certificates are approved while operators are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour), withRequests("csr-0")),
			expectedPlan{"resuming, operators not ready", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForClusterOperatorsReason, minProbeInterval},
		},
		"missing nodes are awaited before operators": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1")), withOperator("degraded", time.Second)), waitNodes,
		},
		"resuming cluster runs once its operators have reported": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Second)), runs(minAftercareInterval),
		},
		"operators are awaited for at most ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), runs(minAftercareInterval),
		},
		"resuming cluster waits for operators that cannot be read": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), func(o *Observed) { o.OperatorsError = "no answer in time" }), waitOperators,
		},
		"resuming cluster runs once its nodes are back":                      {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), runs(minAftercareInterval)},
		"cluster that resumed almost ten minutes ago is probed every minute": {observedCluster("", resumedRecord(aftercareWindow-time.Second), on, apiWithNodes()), runs(maxAftercareInterval)},
		"cluster that resumed long ago is polled at the drift interval":      {observedCluster("", resumedRecord(aftercareWindow), on, apiWithNodes()), runs(driftInterval)},
		"certificates are approved while the nodes are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")),
			expectedPlan{"resuming, nodes have not reported", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForNodesReason, minProbeInterval},
		},
		"certificates are approved for ten minutes after a resume": {
			observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0", "csr-1")),
			expectedPlan{"running", ApproveRequests{[]string{"csr-0", "csr-1"}}, running, running, minProbeInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectPlan(t, row.want, row.in)
		})
	}
}

// expectPlan compares the plan with the expected one. A probe that is due before the next pass counts as the next pass.
func expectPlan(t *testing.T, want expectedPlan, in Observed) {
	t.Helper()
	p := Decide(in)
	got := expectedPlan{p.Rule, p.Do, p.Hibernating.Reason, p.Ready.Reason, p.RequeueAfter}
	if p.ProbeInterval > 0 {
		got.RequeueAfter = min(got.RequeueAfter, p.ProbeInterval)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// observedCluster is a cluster of two machines in the same state, or without machines if the state is empty.
func observedCluster(want hivev1.PowerState, record *hivev1.HibernationRecord, machines actuator.MachineState, but ...func(*Observed)) Observed {
	o := Observed{Now: modelTime(), Installed: true, DesiredPowerState: want, RequestedBy: "somebody", Record: record}
	if machines != "" {
		o.Machines = []actuator.Machine{{ID: "i-0", State: machines}, {ID: "i-1", Name: "worker", State: machines}}
	}
	for _, change := range but {
		change(&o)
	}
	return o
}

func syncAwaited(rest time.Duration) func(*Observed) {
	return func(o *Observed) { o.SyncAwaitedUntil = modelTime().Add(rest) }
}

func secondMachine(s actuator.MachineState) func(*Observed) {
	return func(o *Observed) { o.Machines[1].State = s }
}

// machineOfGroup makes one of the two machines a member of a group of the cloud.
func machineOfGroup(index int) func(*Observed) {
	return func(o *Observed) { o.Machines[index].Group = "workers-a" }
}

func apiWithNodes(nodes ...ObservedNode) func(*Observed) {
	return func(o *Observed) { o.API, o.Nodes = Reachable, nodes }
}

func withRequests(requests ...string) func(*Observed) {
	return func(o *Observed) { o.Approvable = requests }
}

func throttledError() *ObservationError {
	return &ObservationError{Class: actuator.Throttled, Message: "Slow down"}
}

func readyNode(name string) ObservedNode {
	return ObservedNode{RecordedNode: hivev1.RecordedNode{Name: name, UID: "uid-" + name, Ready: true}, LastSeen: modelTime()}
}

func staleNode(name string) ObservedNode {
	n := readyNode(name)
	n.LastSeen = modelTime().Add(-time.Hour)
	return n
}

// notReadyNode is a node that reports with a Ready condition that is False.
func notReadyNode(name string) ObservedNode {
	n := readyNode(name)
	n.Ready = false
	return n
}

func recordedNodes(nodes ...ObservedNode) []hivev1.RecordedNode {
	var list []hivev1.RecordedNode
	for _, n := range nodes {
		list = append(list, n.RecordedNode)
	}
	return list
}

// openRecord is the record of a hibernation that just began.
func openRecord() *hivev1.HibernationRecord {
	return &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Second), RequestedBy: "somebody", Nodes: recordedNodes(readyNode("n0"), readyNode("n1"))}
}

// withOperator adds a ClusterOperator that was last seen the given time ago.
func withOperator(problem string, before time.Duration) func(*Observed) {
	return func(o *Observed) {
		o.Operators = []ObservedOperator{{Name: "etcd", Problem: problem, IsBroken: problem == "degraded", LastSeen: o.Now.Add(-before)}}
	}
}

func resumingRecord(since time.Duration) *hivev1.HibernationRecord {
	r := openRecord()
	r.SleepStartedAt, r.ResumeStartedAt = secondsAgo(24*time.Hour), new(secondsAgo(since))
	return r
}

// resumedRecord is the record of a hibernation that ended the given time ago.
func resumedRecord(since time.Duration) *hivev1.HibernationRecord {
	r := resumingRecord(since + time.Minute)
	r.ResumedAt = new(metav1.NewTime(modelTime().Add(-since)))
	return r
}

func TestNodesAreAwaited(t *testing.T) {
	since := resumingRecord(time.Minute).ResumeStartedAt.Time
	seen := func(n ObservedNode, at time.Time) ObservedNode {
		n.LastSeen = at
		return n
	}
	for name, row := range map[string]struct {
		recorded []ObservedNode
		nodes    []ObservedNode
		want     []string
	}{
		"node seen before the resume is not back":                           {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(-1))}, []string{"n0"}},
		"node seen at the start of the resume is not back":                  {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since)}, []string{"n0"}},
		"node seen after the start of the resume is back":                   {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(1))}, nil},
		"node that has reported in the resume but is not ready is not back": {[]ObservedNode{readyNode("n0")}, []ObservedNode{notReadyNode("n0")}, []string{"n0"}},
		"node recorded as not ready is not awaited":                         {[]ObservedNode{readyNode("n0"), notReadyNode("n1")}, []ObservedNode{readyNode("n0"), staleNode("n1")}, nil},
		"deleted node is not awaited":                                       {[]ObservedNode{readyNode("n0"), readyNode("gone")}, []ObservedNode{readyNode("n0")}, nil},
		"new node is not awaited":                                           {[]ObservedNode{readyNode("n0")}, []ObservedNode{readyNode("n0"), staleNode("new")}, nil},
		"present nodes are awaited if all recorded nodes were deleted":      {[]ObservedNode{readyNode("gone")}, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"all nodes are awaited if no recorded node was ready":               {[]ObservedNode{notReadyNode("n0")}, []ObservedNode{staleNode("n0"), staleNode("n1")}, []string{"n0", "n1"}},
		"all nodes are awaited if no node was recorded":                     {nil, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"no node is awaited if all unrecorded nodes are back":               {nil, []ObservedNode{readyNode("n0"), readyNode("n1")}, nil},
		"cluster without nodes is not back":                                 {[]ObservedNode{readyNode("n0")}, nil, []string{"any node"}},
		"cluster that never had nodes is not back":                          {nil, nil, []string{"any node"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := resumingRecord(time.Minute)
			r.Nodes = recordedNodes(row.recorded...)
			o := observedCluster("", r, actuator.Running, apiWithNodes(row.nodes...))
			if diff := cmp.Diff(row.want, o.missingNodes()); diff != "" {
				t.Errorf("missing nodes (-want +got):\n%s", diff)
			}
			if got := Decide(o).Ready.Status == metav1.ConditionTrue; got != (len(row.want) == 0) {
				t.Errorf("expected ready to be %v, found %v", len(row.want) == 0, got)
			}
		})
	}
}

func TestHibernationRecords(t *testing.T) {
	cancelled := resumingRecord(time.Minute)
	cancelled.Nodes = recordedNodes(readyNode("n0"), readyNode("n1"), notReadyNode("n2"))
	wholeSecond := modelTime().Truncate(time.Second)
	resumeBegun := resumingRecord(0)
	resumeBegun.ResumeStartedAt = new(metav1.NewTime(wholeSecond.Add(time.Second)))
	asleep := func(r *hivev1.HibernationRecord) *hivev1.HibernationRecord {
		r.AsleepAt = new(metav1.NewTime(modelTime()))
		return r
	}
	asleepAt := func(at metav1.Time) func(*Observed) {
		return func(o *Observed) { o.Record.AsleepAt = &at }
	}
	sleptLongAgo := openRecord()
	sleptLongAgo.AsleepAt = new(secondsAgo(time.Hour))
	repair := resumedRecord(time.Hour)
	repair.ResumedAt, repair.Repair, repair.ResumeStartedAt = nil, true, resumeBegun.ResumeStartedAt
	resumed := resumingRecord(time.Minute)
	resumed.ResumedAt = new(metav1.NewTime(modelTime()))
	fresh := func(nodes ...ObservedNode) *hivev1.HibernationRecord {
		return &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(modelTime()), RequestedBy: "somebody", Nodes: recordedNodes(nodes...)}
	}
	const on, off = actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want *hivev1.HibernationRecord
	}{
		"hibernation records the requester and the nodes":       {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"))), fresh(readyNode("n0"), notReadyNode("n1"))},
		"hibernation removes deleted nodes from the record":     {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(readyNode("n0"))), fresh(readyNode("n0"))},
		"hibernation is complete once every machine is stopped": {observedCluster(wantHibernating, openRecord(), off), asleep(openRecord())},
		"recorded end of a hibernation does not change":         {observedCluster(wantHibernating, openRecord(), off, asleepAt(secondsAgo(time.Hour))), sleptLongAgo},
		"machine that was switched on removes the recorded end of the hibernation": {
			observedCluster(wantHibernating, openRecord(), off, secondMachine(on), asleepAt(secondsAgo(time.Hour))), openRecord(),
		},
		"restart of machines that were switched off is recorded as a repair": {observedCluster("", resumedRecord(time.Hour), off), repair},
		"hibernation that lists no nodes keeps the recorded nodes":           {observedCluster(wantHibernating, resumedRecord(time.Hour), on), fresh(readyNode("n0"), readyNode("n1"))},
		"hibernation that cancels a resume keeps the recorded nodes":         {observedCluster(wantHibernating, resumingRecord(time.Minute), off), asleep(fresh(readyNode("n0"), readyNode("n1")))},
		"hibernation that cancels a resume records awaited nodes as ready": {
			observedCluster(wantHibernating, cancelled, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"), notReadyNode("n2"))), fresh(readyNode("n0"), readyNode("n1"), notReadyNode("n2")),
		},
		"stop of machines does not change the hibernation record":  {observedCluster(wantHibernating, openRecord(), on), openRecord()},
		"observation error does not change the hibernation record": {observedCluster("", openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), openRecord()},
		"pause does not change the hibernation record":             {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), openRecord()},
		"start of a resume is recorded as the next whole second": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) { o.Record.ResumeStartedAt = nil }), asleep(resumeBegun.DeepCopy()),
		},
		"start of a resume at a whole second is recorded as the next second": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) {
				o.Record.ResumeStartedAt, o.Record.AsleepAt, o.Now = nil, asleep(openRecord()).AsleepAt, wholeSecond
			}), asleep(resumeBegun.DeepCopy()),
		},
		"recorded start of a resume does not change":                       {observedCluster("", resumingRecord(time.Minute), off), resumingRecord(time.Minute)},
		"resume is complete once the nodes are back":                       {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), resumed},
		"resume can complete in a pass that approves certificate requests": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), resumed},
		"running cluster does not change its hibernation record":           {observedCluster("", resumedRecord(time.Hour), on, apiWithNodes()), resumedRecord(time.Hour)},
		"cluster that never hibernated has no hibernation record":          {observedCluster("", nil, on, apiWithNodes()), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Decide(row.in).Record); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesNameDelayedMachinesAndNodes(t *testing.T) {
	slow := func(late time.Duration) *hivev1.HibernationRecord {
		r := openRecord()
		r.SleepStartedAt = metav1.NewTime(modelTime().Add(-late))
		return r
	}
	slowResume := func(late time.Duration) *hivev1.HibernationRecord {
		r := resumingRecord(0)
		r.ResumeStartedAt = new(metav1.NewTime(modelTime().Add(-late)))
		return r
	}
	unrecorded := slow(0)
	unrecorded.Nodes = nil
	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want decision.Condition
	}{
		"machines that are stopping within the time limit are counted": {
			observedCluster(wantHibernating, slow(lateAfter), goingOff), decision.False(hivev1.StoppingMachinesReason, "Stopping the cluster's 2 machines"),
		},
		"machines that exceed the time limit of a stop are listed": {
			observedCluster(wantHibernating, slow(lateAfter+1), goingOff), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"machines that have stopped are not listed": {
			observedCluster(wantHibernating, slow(time.Hour), off, secondMachine(goingOff)), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for worker (i-1) to stop"),
		},
		"stop without recorded nodes warns": {observedCluster(wantHibernating, unrecorded, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume")},
		"stop with only the last hibernation's nodes warns": {observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API = Unreachable }), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so the record of the last hibernation is used")},
		"machines that the cloud refuses to start are reported with its message": {
			observedCluster("", slowResume(time.Hour), off, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room"}, []string{"i-1"}}
			}),
			decision.False(hivev1.FailedToStartMachinesReason, "No room"),
		},
		"stop without recorded nodes warns before any machine is stopped": {observedCluster(wantHibernating, nil, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume")},
		"machines that are starting within the time limit are counted": {
			observedCluster("", slowResume(lateAfter), goingOn), decision.False(hivev1.StartingMachinesReason, "Starting the cluster's 2 machines"),
		},
		"machines that exceed the time limit of a start are listed": {
			observedCluster("", slowResume(lateAfter+1), on, secondMachine(goingOn)), decision.False(hivev1.WaitingForMachinesReason, "Waiting for worker (i-1) to start"),
		},
		"awaited nodes are listed in alphabetical order": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n1"), staleNode("n0"))),
			decision.False(hivev1.WaitingForNodesReason, "Waiting for nodes to be ready and to report after the start of the machines: n0, n1"),
		},
		"operators are not listed in the first minutes of a resume": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes have reported; waiting for ClusterOperators to be ready"),
		},
		"operators still awaited six minutes into a resume are listed": {
			observedCluster("", resumingRecord(6*time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes have reported; waiting for ClusterOperators to be ready: etcd (has not reported)"),
		},
		"unreachable API server is reported with its error": {
			observedCluster("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "Connection refused" }),
			decision.False(hivev1.APIUnreachableReason, "The API server does not answer: Connection refused"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Decide(row.in).Ready); diff != "" {
				t.Errorf("ready (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestsToACluster(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want []string
	}{
		"running cluster is polled and probed":                           {observedCluster("", nil, on), []string{"cloud", "cluster"}},
		"nodes of a cluster that is about to hibernate are read":         {observedCluster(wantHibernating, nil, on), []string{"cloud", "cluster", "nodes"}},
		"cluster with stopping machines is not dialed":                   {observedCluster(wantHibernating, openRecord(), on), []string{"cloud"}},
		"hibernating cluster is not dialed":                              {observedCluster(wantHibernating, openRecord(), off), []string{"cloud"}},
		"cluster with starting machines is not dialed":                   {observedCluster("", resumingRecord(time.Minute), actuator.Starting), []string{"cloud"}},
		"nodes and certificate requests are read once one machine runs":  {observedCluster("", resumingRecord(time.Minute), on, secondMachine(actuator.Starting)), []string{"cloud", "cluster", "nodes", "requests"}},
		"nodes and certificate requests of a resuming cluster are read":  {observedCluster("", resumingRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"nodes and certificate requests are read shortly after a resume": {observedCluster("", resumedRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"cluster that resumed long ago is only probed":                   {observedCluster("", resumedRecord(time.Hour), on), []string{"cloud", "cluster"}},
		"cloud is not polled without an actuator":                        {observedCluster("", nil, "", func(o *Observed) { o.NoActuator = "x" }), []string{"cluster"}},
		"cluster that cannot hibernate is probed":                        {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud", "cluster"}},
		"stopped cluster that cannot hibernate is not dialed":            {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud"}},
		"resuming cluster with unknown machines is only probed":          {observedCluster("", resumingRecord(time.Minute), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud", "cluster"}},
		"hibernating cluster with unknown machines is not dialed":        {observedCluster("", openRecord(), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud"}},
		"paused cluster is only probed":                                  {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.Paused = true }), []string{"cluster"}},
		"paused hibernating cluster is neither polled nor dialed":        {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			asks := map[string]bool{
				"cloud": NeedsCloud(row.in), "cluster": NeedsCluster(row.in), "nodes": NeedsNodes(row.in), "requests": NeedsCertificateRequests(row.in),
			}
			for kind, asked := range asks {
				if asked != slices.Contains(row.want, kind) {
					t.Errorf("expected the %s to be asked: %v, found %v", kind, !asked, asked)
				}
			}
		})
	}
}

// TestDegradedAndStalledAreReported checks the conditions about missing parts and about waits that have lasted too
// long.
func TestDegradedAndStalledAreReported(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	refused := func(class actuator.ErrorClass, ids ...string) func(*Observed) {
		return func(o *Observed) { o.Refusal = &OrderRefusal{ObservationError{class, "The cloud refuses"}, ids} }
	}
	sleeping := func(since time.Duration) *hivev1.HibernationRecord {
		r := openRecord()
		r.SleepStartedAt = metav1.NewTime(modelTime().Add(-since))
		return r
	}
	all := func(o *Observed) { o.AwaitsAllMachines = true }
	for name, row := range map[string]struct {
		in                Observed
		degraded, stalled decision.Condition
	}{
		"complete cluster is not degraded": {in: observedCluster("", resumedRecord(time.Hour), on, apiWithNodes())},
		"cluster with a machine stopped by a user is degraded": {
			in:       observedCluster("", nil, on, secondMachine(off), apiWithNodes()),
			degraded: decision.True(hivev1.MachinesMissingReason, "Parts of the cluster are missing; machines that do not run: worker (i-1)"),
		},
		"cluster with a stopped machine and its missing node is degraded": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.MachinesMissingReason,
				"Parts of the cluster are missing; machines that do not run: worker (i-1); The cloud refuses; nodes that are not ready, or have not reported since the resume began: n1"),
		},
		"cluster with a node that does not report is degraded": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.NodesMissingReason, "Parts of the cluster are missing; nodes that are not ready, or have not reported since the resume began: n1"),
		},
		"cluster with a degraded operator is degraded": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)),
			degraded: decision.True(hivev1.ClusterOperatorsNotReadyReason, "The cluster runs; the resume no longer waits for ClusterOperators that were not ready after ten minutes: etcd (degraded)"),
		},
		"cluster with an operator that never reported is not degraded": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
		},
		"resume within its time limit is not stalled": {in: observedCluster("", resumingRecord(stalledAfter-time.Second), on, func(o *Observed) { o.API = Unreachable })},
		"resume that waits too long for the API server is stalled": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }),
			stalled: decision.True(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer: no answer in time"),
		},
		"resume that waits for the API server reports a group that is not restored, and the refusal": {
			in: observedCluster("", resumingRecord(stalledAfter+time.Second), on, refused(actuator.PermissionDenied, "workers-a"), func(o *Observed) {
				o.API, o.APIMessage, o.Groups = Unreachable, "no answer in time", []actuator.Group{{Name: "workers-a"}}
				o.Record.MachineGroups = []hivev1.MachineGroupRecord{{Name: "workers-a", Mode: hivev1.MachineGroupsScaleToZero, DesiredSize: 2}}
			}),
			stalled: decision.True(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer: no answer in time; "+
				"machine groups that are not restored to their state before the hibernation: workers-a; The cloud refuses"),
		},
		"resume that requires all machines is stalled by a machine that the cloud refuses to start": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), all, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			stalled: decision.True(hivev1.FailedToStartMachinesReason, "The cloud refuses"),
		},
		"hibernation that takes too long is stalled": {
			in:      observedCluster(wantHibernating, sleeping(stalledAfter+time.Second), actuator.Stopping),
			stalled: decision.True(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"hibernation that the cloud refuses permanently is stalled": {
			in:      observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Other, "i-0", "i-1")),
			stalled: decision.True(hivev1.FailedToStopReason, "The cloud refuses; no machine is stopped until all can be stopped: remove the cause, or set spec.powerState to Running"),
		},
		"hibernation that the cloud refuses temporarily is not stalled": {in: observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Throttled, "i-0", "i-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff([]decision.Condition{row.degraded, row.stalled}, []decision.Condition{p.Degraded, p.Stalled}); diff != "" {
				t.Errorf("degraded and stalled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreachableReportsOnlyReachability checks that other problems do not change the condition Unreachable.
func TestUnreachableReportsOnlyReachability(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"throttled cloud call does not change Unreachable":    func(o *Observed) { o.ObservationError, o.Machines = throttledError(), nil },
		"pause does not change Unreachable":                   func(o *Observed) { o.Paused = true },
		"version that is too old does not change Unreachable": func(o *Observed) { o.DesiredPowerState, o.Incompatible = wantHibernating, "Too old" },
		"stopped machine does not change Unreachable":         secondMachine(actuator.Stopped),
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster("", nil, actuator.Running, change)
			if !NeedsCluster(o) {
				t.Error("expected the cluster to be asked whether it answers")
			}
			o.API = Reachable
			if got := Decide(o).Unreachable; got != reachableCondition() {
				t.Errorf("found %+v, want the condition of a reachable cluster", got)
			}
			o.API, o.APIMessage = Unreachable, "no answer in time"
			if got := Decide(o).Unreachable; got != decision.True(hivev1.ErrorConnectingToClusterReason, "no answer in time") {
				t.Errorf("found %+v, want the condition of an unreachable cluster", got)
			}
		})
	}
}

func TestMayDial(t *testing.T) {
	const noState hivev1.PowerState = ""
	reported := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	answers := reported(hivev1.ClusterUnreachableCondition, metav1.ConditionFalse, hivev1.ClusterReachableReason)
	silent := reported(hivev1.ClusterUnreachableCondition, metav1.ConditionTrue, hivev1.ErrorConnectingToClusterReason)
	unsupported := reported(hivev1.ClusterHibernatingCondition, metav1.ConditionFalse, hivev1.UnsupportedHibernationReason)
	awaitsSync := reported(hivev1.ClusterHibernatingCondition, metav1.ConditionFalse, hivev1.SyncSetsNotAppliedReason)
	for name, row := range map[string]struct {
		wants      hivev1.PowerState
		conditions []metav1.Condition
		// runs is the time for which the cluster has run, with a limit of an hour. Zero means no limit.
		runs time.Duration
		want bool
	}{
		"reachable cluster is dialed":                                            {noState, []metav1.Condition{answers}, 0, true},
		"cluster with a requested hibernation is not dialed":                     {wantHibernating, []metav1.Condition{answers}, 0, false},
		"cluster that cannot hibernate as requested is dialed":                   {wantHibernating, []metav1.Condition{answers, unsupported}, 0, true},
		"unreachable cluster that cannot hibernate as requested is not dialed":   {wantHibernating, []metav1.Condition{silent, unsupported}, 0, false},
		"new cluster that waits for its SyncSets before it hibernates is dialed": {wantHibernating, []metav1.Condition{answers, awaitsSync}, 9 * time.Minute, true},
		"new cluster that has stopped waiting for its SyncSets is not dialed":    {wantHibernating, []metav1.Condition{answers, awaitsSync}, 10 * time.Minute, false},
		"cluster within its run time is dialed":                                  {noState, []metav1.Condition{answers}, 59 * time.Minute, true},
		"cluster beyond its run time is not dialed before the next report":       {noState, []metav1.Condition{answers}, time.Hour, false},
		"cluster beyond its run time with spec.powerState Running is not dialed": {hivev1.PowerStateRunning, []metav1.Condition{answers}, time.Hour, false},
		"cluster beyond its run time that cannot hibernate is dialed":            {noState, []metav1.Condition{answers, unsupported}, time.Hour, true},
		"unreachable cluster is not dialed":                                      {noState, []metav1.Condition{silent}, 0, false},
		"cluster that was not probed is not dialed":                              {noState, []metav1.Condition{reported(hivev1.ClusterUnreachableCondition, metav1.ConditionUnknown, hivev1.NotProbedReason)}, 0, false},
		"cluster without conditions is not dialed":                               {noState, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := modelTime()
			cd := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{PowerState: row.wants}, Status: hivev1.ClusterDeploymentStatus{Conditions: row.conditions}}
			if row.runs > 0 {
				cd.Spec.HibernateAfter, cd.Status.InstalledTimestamp = "1h", new(metav1.NewTime(now.Add(-row.runs)))
			}
			if got := MayDial(cd, now); got != row.want {
				t.Errorf("found %t, want %t", got, row.want)
			}
		})
	}
}
