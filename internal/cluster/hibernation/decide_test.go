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

// expectedPlan holds what most rows compare: the rule, the action, and the reasons of Hibernating and Ready.
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
	unsupported := expectedPlan{"cannot hibernate", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, driftInterval}
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
	waitNodes := expectedPlan{"resuming, nodes not back", NoAction{}, starting, hivev1.WaitingForNodesReason, minProbeInterval}

	waitOperators := expectedPlan{"resuming, operators not ready", NoAction{}, starting, hivev1.WaitingForClusterOperatorsReason, operatorInterval}

	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"new cluster is left on until its SyncSets are applied":      {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Minute)), awaitSync(firstSyncInterval)},
		"wait for SyncSets is bounded":                               {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Second)), awaitSync(minCloudInterval)},
		"new cluster hibernates after the longest wait for SyncSets": {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(0)), writeNodes},
		"unreachable cluster does not wait for SyncSets":             {observedCluster(wantHibernating, nil, on, syncAwaited(time.Minute), func(o *Observed) { o.API = Unreachable }), writeNodes},
		"cluster that has hibernated does not wait for SyncSets":     {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(), syncAwaited(time.Minute)), writeNodes},
		"running cluster does not wait for SyncSets":                 {observedCluster(hivev1.PowerStateRunning, nil, on, apiWithNodes(), syncAwaited(time.Minute)), runs(driftInterval)},
		"a deleted cluster is left alone":                            {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Deleted = true }), unknown("deleted", hivev1.DeletedReason, 0)},
		"deletion has precedence over every other observation": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) {
				o.Deleted, o.Paused, o.Installed, o.Invalid, o.NoActuator, o.Incompatible, o.ObservationError = true, true, false, "x", "x", "x", throttledError()
			}), unknown("deleted", hivev1.DeletedReason, 0),
		},
		"a paused cluster is left alone": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Paused, o.Installed = true, false }), unknown("paused", hivev1.PausedReason, driftInterval)},
		"a cluster that is being installed is left alone": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Installed, o.Invalid = false, "x" }), unknown("not installed", hivev1.NotInstalledReason, 0),
		},
		"missing fields of the spec are reported before the platform": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Invalid, o.NoActuator = "x", "x" }), unknown("invalid spec", hivev1.InvalidSpecReason, 0),
		},

		"an opt-out keeps machines from being stopped":                    {observedCluster(wantHibernating, nil, on, optedOut(Reachable)), optOut(hivev1.UnsupportedHibernationReason, running, driftInterval)},
		"an opt-out keeps machines from being started":                    {observedCluster("", openRecord(), off, optedOut(Reachable)), optOut(running, running, driftInterval)},
		"an opt-out for an unreachable cluster leaves its machines alone": {observedCluster("", nil, off, optedOut(Unreachable)), optOut(running, hivev1.APIUnreachableReason, retryInterval)},
		"an opt-out during a resume leaves the machines alone":            {observedCluster("", resumingRecord(time.Minute), off, optedOut(Reachable)), optOut(running, running, driftInterval)},
		"an opt-out during a drain leaves the machines alone":             {observedCluster(wantHibernating, &hivev1.HibernationRecord{Drain: &hivev1.DrainRecord{}}, on, optedOut(Reachable)), optOut(hivev1.UnsupportedHibernationReason, running, driftInterval)},
		"an opt-out for a cluster without kubeconfig leaves its machines alone": {
			observedCluster("", nil, "", optedOut(NotProbed), func(o *Observed) { o.Invalid = "x" }), optOut(running, hivev1.InvalidSpecReason, driftInterval),
		},
		"a pause comes before an opt-out": {
			observedCluster("", nil, "", optedOut(NotProbed), func(o *Observed) { o.Paused = true }), unknown("paused", hivev1.PausedReason, driftInterval),
		},

		"a cluster on a platform without an actuator cannot hibernate":       {observedCluster(wantHibernating, nil, "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"a cluster whose platform lost its actuator can no longer hibernate": {observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"a cluster on a platform without an actuator runs if its API server answers": {
			observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a cluster on a platform without an actuator is probed like others": {observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API, o.APIMessage = "x", Unreachable, "x" }), unreachable},
		"a cluster with a version that is too old cannot hibernate, whatever the cloud returns": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible, o.ObservationError = "x", throttledError() }), unsupported,
		},
		"a stopped cluster with a version that is too old counts as hibernating": {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"a partly stopped cluster with a version that is too old cannot hibernate": {
			observedCluster(wantHibernating, nil, off, secondMachine(on), func(o *Observed) { o.Incompatible = "x" }), unsupported,
		},
		"a version that is too old does not matter to a running cluster": {
			observedCluster("", nil, on, func(o *Observed) { o.Incompatible, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a hibernating cluster continues with a version that is too old":                  {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"a resume can be cancelled although the version is too old":                       {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.Incompatible, o.API = "x", Unreachable }), writeNodes},
		"a cluster with a recorded hibernation is stopped with a version that is too old": {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.Incompatible = "x" }), stop("i-0", "i-1")},

		"an observation error comes before a hibernation":                                       {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), unknown("machines not observed", hivev1.CloudThrottledReason, maxCloudInterval)},
		"a cluster without machines does not hibernate":                                         {observedCluster(wantHibernating, openRecord(), ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"a cluster without machines does not run":                                               {observedCluster("", nil, ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"stopped machines count as a hibernation if the cluster has a hibernation record":       {observedCluster(wantHibernating, openRecord(), off), hibernates},
		"stopped machines count as a hibernation even if the cluster has no hibernation record": {observedCluster(wantHibernating, nil, off), hibernates},

		"nodes are recorded before any machine is stopped":           {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"))), writeNodes},
		"an empty record is saved if the API server does not answer": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API = Unreachable }), writeNodes},
		"nodes are recorded again after an earlier hibernation":      {observedCluster(wantHibernating, resumedRecord(time.Hour), on), writeNodes},
		"nodes are recorded again when a resume is cancelled":        {observedCluster(wantHibernating, resumingRecord(time.Minute), goingOn), writeNodes},
		"running machines are stopped once the nodes are recorded":   {observedCluster(wantHibernating, openRecord(), on), stop("i-0", "i-1")},
		"of two machines only the running one is stopped":            {observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOff)), stop("i-0")},
		"a machine that starts is stopped once it runs":              {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOn)), waitStop},
		"a machine that is off and billed is stopped, and the cluster does not hibernate yet": {
			observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), stop("i-1"),
		},
		"a machine that is off and billed is started like others": {
			observedCluster("Running", resumingRecord(time.Second), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), start("i-0", "i-1"),
		},
		"a stopped and a stopping machine do not count as a hibernation yet": {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOff)), waitStop},

		"the resume is recorded before any machine is started":                                   {observedCluster("Running", openRecord(), off), writeResume},
		"a resume is recorded if another party stopped all machines of a resumed cluster":        {observedCluster("", resumedRecord(time.Hour), off), writeResume},
		"a resume is recorded if all machines are off and the cluster has no hibernation record": {observedCluster("", nil, off), writeResume},
		"machines are started once the resume is recorded":                                       {observedCluster("", resumingRecord(time.Second), off), start("i-0", "i-1")},
		"a starting machine is awaited": {
			observedCluster("", resumingRecord(time.Second), goingOn), waitStart,
		},
		"of two machines only the stopped one is started": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off)),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.StartingMachinesReason, minProbeInterval},
		},
		"the API server is probed while the second machine starts": {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn), apiWithNodes(readyNode("n0"), staleNode("n1"))), followStart},

		"a machine that a user stopped is started, and the cluster keeps running": {
			observedCluster("", nil, on, secondMachine(off), apiWithNodes()), inPart(StartMachines{[]string{"i-1"}}, retryInterval),
		},
		"a machine that stops while another one runs is awaited": {observedCluster("", nil, on, secondMachine(goingOff), apiWithNodes()), inPart(NoAction{}, retryInterval)},
		"a machine that a user stopped is started while the API server is unreachable": {
			observedCluster("", nil, on, secondMachine(off), func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"running, API server not reachable", StartMachines{[]string{"i-1"}}, running, hivev1.APIUnreachableReason, retryInterval},
		},
		"a machine without capacity does not delay certificates of nodes": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(staleNode("n0"), staleNode("n1")), withRequests("csr-0")),
			expectedPlan{"machines are starting", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.FailedToStartMachinesReason, minProbeInterval},
		},
		"a machine without capacity is awaited together with its node": {
			observedCluster("", resumingRecord(partialResumeAfter-time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"a machine without capacity is no longer awaited after ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"a machine without capacity is awaited if all machines are required": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1")),
				func(o *Observed) { o.AwaitsAllMachines = true }),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"a machine without capacity and without a missing node is not awaited": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), readyNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"a node that does not come back is no longer awaited after ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), inPart(NoAction{}, maxCloudInterval),
		},
		"a cluster without any reporting node is awaited": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(staleNode("n0"), staleNode("n1"))),
			expectedPlan{"resuming, nodes not back", NoAction{}, starting, hivev1.WaitingForNodesReason, maxCloudInterval},
		},
		"a machine that cannot be stopped is reported": {
			observedCluster(wantHibernating, openRecord(), on, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.Other, "Protected"}, []string{"i-0", "i-1"}}
			}),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.FailedToStopReason, retryInterval},
		},

		"the API server of a resuming cluster is awaited":                     {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.API = Unreachable }), waitAPI},
		"an unreachable API server of a running cluster is reported":          {observedCluster("", resumedRecord(time.Minute), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), unreachable},
		"a hibernated cluster whose machines already run waits for its nodes": {observedCluster("", openRecord(), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), waitNodes},
		"a hibernation waits for an unreachable API server, to record the nodes": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow+time.Second) }),
			expectedPlan{"waiting to record nodes", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"a hibernation waits for an unreachable API server for a bounded time": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow) }), writeNodes},
		"a hibernation waits for an unreachable API server even if nodes of the last hibernation are recorded": {
			observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }),
			expectedPlan{"waiting to record nodes", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"a hibernation that cancels a resume does not wait for an unreachable API server": {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }), writeNodes},
		"a machine that starts while another one runs does not count as a resume":         {observedCluster("", nil, on, secondMachine(goingOn), apiWithNodes()), runs(driftInterval)},
		"a machine that starts in a resuming cluster is awaited":                          {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn)), followStart},
		"machines of a group are not stopped": {
			observedCluster(wantHibernating, nil, on, machineOfGroup(1), apiWithNodes(readyNode("n0"))),
			expectedPlan{"cannot hibernate", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.RunningHibernationReason, driftInterval},
		},
		"a hibernation ends if a group has replaced a machine": {
			observedCluster(wantHibernating, openRecord(), off, secondMachine(on), machineOfGroup(1)),
			expectedPlan{"cannot hibernate", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, driftInterval},
		},
		"a resuming cluster waits for its nodes": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), waitNodes},
		"a resuming cluster of OpenShift waits for an operator that has not reported": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)), waitOperators,
		},
		"a resuming cluster of OpenShift waits for an operator that is degraded": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), waitOperators,
		},
		"certificates are approved while operators are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour), withRequests("csr-0")),
			expectedPlan{"resuming, operators not ready", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForClusterOperatorsReason, minProbeInterval},
		},
		"nodes that are missing come before operators": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1")), withOperator("degraded", time.Second)), waitNodes,
		},
		"a resuming cluster runs when its operators have reported": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Second)), runs(minAftercareInterval),
		},
		"operators are awaited for ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), runs(minAftercareInterval),
		},
		"a cluster whose operators cannot be read is awaited for ten minutes": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), func(o *Observed) { o.OperatorsError = "no answer in time" }), waitOperators,
		},
		"a resuming cluster runs when its nodes are back":                      {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), runs(minAftercareInterval)},
		"a cluster that resumed almost ten minutes ago is probed every minute": {observedCluster("", resumedRecord(aftercareWindow-time.Second), on, apiWithNodes()), runs(maxAftercareInterval)},
		"a cluster that resumed long ago is compared at the drift interval":    {observedCluster("", resumedRecord(aftercareWindow), on, apiWithNodes()), runs(driftInterval)},
		"certificates are approved while the nodes are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")),
			expectedPlan{"resuming, nodes not back", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForNodesReason, minProbeInterval},
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

// observedCluster is a cluster of two machines in the same state, none if that is empty.
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

// notReadyNode is a node that reports, with the condition Ready False.
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

// withOperator adds a ClusterOperator that was seen last some time ago.
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
		"a node seen before the resume is not back":                      {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(-1))}, []string{"n0"}},
		"a node seen at the start of the resume is not back":             {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since)}, []string{"n0"}},
		"a node seen after the resume began is back":                     {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(1))}, nil},
		"a node seen after the resume began, but not ready, is not back": {[]ObservedNode{readyNode("n0")}, []ObservedNode{notReadyNode("n0")}, []string{"n0"}},
		"a node that was recorded as not ready is not awaited":           {[]ObservedNode{readyNode("n0"), notReadyNode("n1")}, []ObservedNode{readyNode("n0"), staleNode("n1")}, nil},
		"a node that is gone is not awaited":                             {[]ObservedNode{readyNode("n0"), readyNode("gone")}, []ObservedNode{readyNode("n0")}, nil},
		"a node that is new is not awaited":                              {[]ObservedNode{readyNode("n0")}, []ObservedNode{readyNode("n0"), staleNode("new")}, nil},
		"the present nodes are awaited if all recorded nodes are gone":   {[]ObservedNode{readyNode("gone")}, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"all nodes are awaited if no recorded one was ready":             {[]ObservedNode{notReadyNode("n0")}, []ObservedNode{staleNode("n0"), staleNode("n1")}, []string{"n0", "n1"}},
		"all nodes are awaited if none was recorded":                     {nil, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"no node is awaited if none was recorded and all are back":       {nil, []ObservedNode{readyNode("n0"), readyNode("n1")}, nil},
		"a cluster without nodes is not back":                            {[]ObservedNode{readyNode("n0")}, nil, []string{"any node"}},
		"a cluster that never had nodes is not back":                     {nil, nil, []string{"any node"}},
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
		"a hibernation records the requester and the nodes":       {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"))), fresh(readyNode("n0"), notReadyNode("n1"))},
		"a hibernation removes deleted nodes from the record":     {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(readyNode("n0"))), fresh(readyNode("n0"))},
		"a hibernation is complete when every machine is stopped": {observedCluster(wantHibernating, openRecord(), off), asleep(openRecord())},
		"a complete hibernation is recorded once":                 {observedCluster(wantHibernating, openRecord(), off, asleepAt(secondsAgo(time.Hour))), sleptLongAgo},
		"a machine that was switched on ends a complete hibernation": {
			observedCluster(wantHibernating, openRecord(), off, secondMachine(on), asleepAt(secondsAgo(time.Hour))), openRecord(),
		},
		"a repair is recorded for machines that were switched off":     {observedCluster("", resumedRecord(time.Hour), off), repair},
		"a hibernation that lists no nodes keeps the recorded nodes":   {observedCluster(wantHibernating, resumedRecord(time.Hour), on), fresh(readyNode("n0"), readyNode("n1"))},
		"a hibernation that cancels a resume keeps the recorded nodes": {observedCluster(wantHibernating, resumingRecord(time.Minute), off), asleep(fresh(readyNode("n0"), readyNode("n1")))},
		"a hibernation that cancels a resume records awaited nodes as ready": {
			observedCluster(wantHibernating, cancelled, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"), notReadyNode("n2"))), fresh(readyNode("n0"), readyNode("n1"), notReadyNode("n2")),
		},
		"a stop of machines does not change the hibernation record":   {observedCluster(wantHibernating, openRecord(), on), openRecord()},
		"an observation error does not change the hibernation record": {observedCluster("", openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), openRecord()},
		"a pause does not change the hibernation record":              {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), openRecord()},
		"the recorded start of a resume is the next whole second": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) { o.Record.ResumeStartedAt = nil }), asleep(resumeBegun.DeepCopy()),
		},
		"the recorded start of a resume at a whole second is the second after it": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) {
				o.Record.ResumeStartedAt, o.Record.AsleepAt, o.Now = nil, asleep(openRecord()).AsleepAt, wholeSecond
			}), asleep(resumeBegun.DeepCopy()),
		},
		"a resume does not change its start time":                       {observedCluster("", resumingRecord(time.Minute), off), resumingRecord(time.Minute)},
		"a resume ends when the nodes are back":                         {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), resumed},
		"a resume can end in a pass that approves certificate requests": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), resumed},
		"a running cluster does not change its hibernation record":      {observedCluster("", resumedRecord(time.Hour), on, apiWithNodes()), resumedRecord(time.Hour)},
		"a cluster that never hibernated has no hibernation record":     {observedCluster("", nil, on, apiWithNodes()), nil},
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
		"machines that exceed the time limit of a stop are named": {
			observedCluster(wantHibernating, slow(lateAfter+1), goingOff), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"machines that have stopped are not named": {
			observedCluster(wantHibernating, slow(time.Hour), off, secondMachine(goingOff)), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for worker (i-1) to stop"),
		},
		"a stop without recorded nodes warns": {observedCluster(wantHibernating, unrecorded, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume")},
		"a stop with nodes of the last hibernation warns": {observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API = Unreachable }), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so the record of the last hibernation is used")},
		"machines that the cloud refuses to start are reported with its message": {
			observedCluster("", slowResume(time.Hour), off, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room"}, []string{"i-1"}}
			}),
			decision.False(hivev1.FailedToStartMachinesReason, "No room"),
		},
		"a stop without recorded nodes warns before any machine is stopped": {observedCluster(wantHibernating, nil, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; the cluster's nodes could not be recorded, so a user may have to approve their certificate requests at the resume")},
		"machines that are starting within the time limit are counted": {
			observedCluster("", slowResume(lateAfter), goingOn), decision.False(hivev1.StartingMachinesReason, "Starting the cluster's 2 machines"),
		},
		"machines that exceed the time limit of a start are named": {
			observedCluster("", slowResume(lateAfter+1), on, secondMachine(goingOn)), decision.False(hivev1.WaitingForMachinesReason, "Waiting for worker (i-1) to start"),
		},
		"nodes are named in order": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n1"), staleNode("n0"))),
			decision.False(hivev1.WaitingForNodesReason, "Waiting for nodes to report after the start of the machines: n0, n1"),
		},
		"operators are not named in the first minutes of a resume": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes have reported; waiting for ClusterOperators to be ready"),
		},
		"operators that are still awaited after six minutes are named": {
			observedCluster("", resumingRecord(6*time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes have reported; waiting for ClusterOperators to be ready: etcd (has not reported)"),
		},
		"an unreachable API server is reported with its error": {
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
		"a running cluster is probed":                                    {observedCluster("", nil, on), []string{"cloud", "cluster"}},
		"the nodes of a cluster that is about to hibernate are read":     {observedCluster(wantHibernating, nil, on), []string{"cloud", "cluster", "nodes"}},
		"a cluster whose machines stop is not dialed":                    {observedCluster(wantHibernating, openRecord(), on), []string{"cloud"}},
		"a cluster that hibernates is not dialed":                        {observedCluster(wantHibernating, openRecord(), off), []string{"cloud"}},
		"a cluster whose machines start is not dialed":                   {observedCluster("", resumingRecord(time.Minute), actuator.Starting), []string{"cloud"}},
		"nodes and certificate requests are read once one machine runs":  {observedCluster("", resumingRecord(time.Minute), on, secondMachine(actuator.Starting)), []string{"cloud", "cluster", "nodes", "requests"}},
		"nodes and certificate requests of a resuming cluster are read":  {observedCluster("", resumingRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"nodes and certificate requests are read shortly after a resume": {observedCluster("", resumedRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"a cluster that resumed long ago is only probed":                 {observedCluster("", resumedRecord(time.Hour), on), []string{"cloud", "cluster"}},
		"without an actuator, no cloud is polled":                        {observedCluster("", nil, "", func(o *Observed) { o.NoActuator = "x" }), []string{"cluster"}},
		"a cluster that cannot hibernate is probed":                      {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud", "cluster"}},
		"a cluster that cannot hibernate and is off is not dialed":       {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud"}},
		"a cluster whose machines are unknown is only probed":            {observedCluster("", resumingRecord(time.Minute), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud", "cluster"}},
		"a hibernating cluster whose machines are unknown is not dialed": {observedCluster("", openRecord(), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud"}},
		"a paused cluster is only probed":                                {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.Paused = true }), []string{"cluster"}},
		"a paused cluster that hibernates is neither polled nor dialed":  {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), nil},
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

// TestDegradedAndStalledAreReported checks the report of missing parts, and of waits that have lasted too long.
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
		"a complete cluster: not degraded": {in: observedCluster("", resumedRecord(time.Hour), on, apiWithNodes())},
		"a machine stopped by a user: degraded": {
			in:       observedCluster("", nil, on, secondMachine(off), apiWithNodes()),
			degraded: decision.True(hivev1.MachinesMissingReason, "Parts of the cluster are missing; machines that do not run: worker (i-1)"),
		},
		"a missing machine and its node: degraded": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.MachinesMissingReason,
				"Parts of the cluster are missing; machines that do not run: worker (i-1); The cloud refuses; nodes that have not reported since the resume: n1"),
		},
		"a node that does not report: degraded": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.NodesMissingReason, "Parts of the cluster are missing; nodes that have not reported since the resume: n1"),
		},
		"a degraded operator: degraded": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)),
			degraded: decision.True(hivev1.ClusterOperatorsNotReadyReason, "The cluster runs; the resume no longer waits for ClusterOperators that were not ready after ten minutes: etcd (degraded)"),
		},
		"an operator that never reported: not degraded": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
		},
		"a resume within its time: not stalled": {in: observedCluster("", resumingRecord(stalledAfter-time.Second), on, func(o *Observed) { o.API = Unreachable })},
		"a resume that waits too long for the API server: stalled": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }),
			stalled: decision.True(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer: no answer in time"),
		},
		"a resume that requires all machines, one refused: stalled": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), all, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			stalled: decision.True(hivev1.FailedToStartMachinesReason, "The cloud refuses"),
		},
		"a hibernation that takes too long: stalled": {
			in:      observedCluster(wantHibernating, sleeping(stalledAfter+time.Second), actuator.Stopping),
			stalled: decision.True(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"a permanently refused hibernation: stalled": {
			in:      observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Other, "i-0", "i-1")),
			stalled: decision.True(hivev1.FailedToStopReason, "The cloud refuses; no machine is stopped until all can be stopped: remove the cause, or set spec.powerState to Running"),
		},
		"a temporarily refused hibernation: not stalled": {in: observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Throttled, "i-0", "i-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff([]decision.Condition{row.degraded, row.stalled}, []decision.Condition{p.Degraded, p.Stalled}); diff != "" {
				t.Errorf("degraded and stalled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreachableReportsOnlyReachability checks clusters that answer and have problems of other kinds.
func TestUnreachableReportsOnlyReachability(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"a throttled call of the cloud: Unreachable does not change": func(o *Observed) { o.ObservationError, o.Machines = throttledError(), nil },
		"a pause: Unreachable does not change":                       func(o *Observed) { o.Paused = true },
		"a version that is too old: Unreachable does not change":     func(o *Observed) { o.DesiredPowerState, o.Incompatible = wantHibernating, "Too old" },
		"a machine that was stopped: Unreachable does not change":    secondMachine(actuator.Stopped),
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
		// runs is how long the cluster has run, of an hour that it may; zero sets no limit.
		runs time.Duration
		want bool
	}{
		"a reachable cluster is dialed":                                           {noState, []metav1.Condition{answers}, 0, true},
		"a cluster whose hibernation is requested is not dialed":                  {wantHibernating, []metav1.Condition{answers}, 0, false},
		"a cluster that cannot hibernate as requested is dialed":                  {wantHibernating, []metav1.Condition{answers, unsupported}, 0, true},
		"an unreachable cluster that cannot hibernate as requested is not dialed": {wantHibernating, []metav1.Condition{silent, unsupported}, 0, false},
		"a new cluster whose hibernation waits for its SyncSets is dialed":        {wantHibernating, []metav1.Condition{answers, awaitsSync}, 9 * time.Minute, true},
		"a cluster whose wait for its SyncSets has ended is not dialed":           {wantHibernating, []metav1.Condition{answers, awaitsSync}, 10 * time.Minute, false},
		"a cluster within its running time is dialed":                             {noState, []metav1.Condition{answers}, 59 * time.Minute, true},
		"a cluster beyond its running time, not yet reported, is not dialed":      {noState, []metav1.Condition{answers}, time.Hour, false},
		"a cluster beyond its running time, set to Running, is not dialed":        {hivev1.PowerStateRunning, []metav1.Condition{answers}, time.Hour, false},
		"a cluster beyond its running time that cannot hibernate is dialed":       {noState, []metav1.Condition{answers, unsupported}, time.Hour, true},
		"an unreachable cluster is not dialed":                                    {noState, []metav1.Condition{silent}, 0, false},
		"a cluster that was not probed is not dialed":                             {noState, []metav1.Condition{reported(hivev1.ClusterUnreachableCondition, metav1.ConditionUnknown, hivev1.NotProbedReason)}, 0, false},
		"a cluster without conditions is not dialed":                              {noState, nil, 0, false},
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
