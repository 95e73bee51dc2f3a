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

// expectedPlan is what most rows are about: the rule, the effect, and the reasons of Hibernating and Ready.
type expectedPlan struct {
	Rule               string
	Do                 Action
	Hibernating, Ready string
	// RequeueAfter is when the pass runs again or the cluster is looked at, whichever is sooner.
	RequeueAfter time.Duration
}

func TestDecide(t *testing.T) {
	stopping, starting := hivev1.StoppingHibernationReason, hivev1.ResumingHibernationReason
	running, asleep := hivev1.RunningHibernationReason, hivev1.HibernatingHibernationReason
	unknown := func(rule, reason string, after time.Duration) expectedPlan {
		return expectedPlan{rule, NoAction{}, reason, reason, after}
	}
	unsupported := expectedPlan{"cannot hibernate", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, driftInterval}
	stop := func(ids ...string) expectedPlan {
		return expectedPlan{"stop machines", StopMachines{IDs: ids}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	}
	start := func(ids ...string) expectedPlan {
		return expectedPlan{"machines are starting", StartMachines{ids}, starting, hivev1.StartingMachinesReason, machineWaitInterval}
	}
	waitStart := expectedPlan{"machines are starting", NoAction{}, starting, hivev1.StartingMachinesReason, machineWaitInterval}
	followStart := expectedPlan{"machines are starting", NoAction{}, starting, hivev1.StartingMachinesReason, minProbeInterval}
	waitStop := expectedPlan{"machines are stopping", NoAction{}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	writeNodes := expectedPlan{"write the nodes down", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately}
	awaitSync := func(after time.Duration) expectedPlan {
		return expectedPlan{"SyncSets not applied yet", NoAction{}, hivev1.SyncSetsNotAppliedReason, running, after}
	}
	writeResume := expectedPlan{"write the wake-up down", NoAction{}, starting, hivev1.StartingMachinesReason, immediately}
	hibernates := expectedPlan{"asleep", NoAction{}, asleep, asleep, closeLookWindow}
	inPart := func(do Action, after time.Duration) expectedPlan {
		return expectedPlan{"running in part", do, running, running, after}
	}
	noCapacity := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room for i-1"}, []string{"i-1"}}
	}
	runs := func(after time.Duration) expectedPlan {
		return expectedPlan{"running", NoAction{}, running, running, after}
	}
	unreachable := expectedPlan{"awake, API silent", NoAction{}, running, hivev1.APIUnreachableReason, retryInterval}
	waitAPI := expectedPlan{"waking, API silent", NoAction{}, starting, hivev1.WaitingForAPIReason, minProbeInterval}
	waitNodes := expectedPlan{"waking, nodes not back", NoAction{}, starting, hivev1.WaitingForNodesReason, minProbeInterval}

	waitOperators := expectedPlan{"waking, operators not ready", NoAction{}, starting, hivev1.WaitingForClusterOperatorsReason, operatorInterval}

	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"a young cluster is left on until its SyncSets are applied": {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Minute)), awaitSync(firstSyncInterval)},
		"that wait has an end":                               {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(time.Second)), awaitSync(minCloudInterval)},
		"that wait is over":                                  {observedCluster(wantHibernating, nil, on, apiWithNodes(), syncAwaited(0)), writeNodes},
		"that wait is not for a silent cluster":              {observedCluster(wantHibernating, nil, on, syncAwaited(time.Minute), func(o *Observed) { o.API = Unreachable }), writeNodes},
		"that wait is not for a cluster that has hibernated": {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(), syncAwaited(time.Minute)), writeNodes},
		"that wait is none of a cluster that runs":           {observedCluster(hivev1.PowerStateRunning, nil, on, apiWithNodes(), syncAwaited(time.Minute)), runs(driftInterval)},
		"a deleted cluster is left alone":                    {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Deleted = true }), unknown("deleted", hivev1.DeletedReason, 0)},
		"deletion comes before everything else": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) {
				o.Deleted, o.Paused, o.Installed, o.Invalid, o.NoActuator, o.Incompatible, o.ObservationError = true, true, false, "x", "x", "x", throttledError()
			}), unknown("deleted", hivev1.DeletedReason, 0),
		},
		"a paused cluster is left alone": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Paused, o.Installed = true, false }), unknown("paused", hivev1.PausedReason, driftInterval)},
		"a cluster that is being installed is left alone": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Installed, o.Invalid = false, "x" }), unknown("not installed", hivev1.NotInstalledReason, 0),
		},
		"a spec without fields is named before the platform": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Invalid, o.NoActuator = "x", "x" }), unknown("invalid spec", hivev1.InvalidSpecReason, 0),
		},

		"a platform without an actuator cannot hibernate":            {observedCluster(wantHibernating, nil, "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"a platform that lost its actuator cannot go on hibernating": {observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"a platform without an actuator runs as long as it should": {
			observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a platform without an actuator is probed like others": {observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API, o.APIMessage = "x", Unreachable, "x" }), unreachable},
		"a version that is too old cannot hibernate, whatever the cloud says": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible, o.ObservationError = "x", throttledError() }), unsupported,
		},
		"a cluster that is off hibernates, whatever is known of its version": {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"a cluster that is off in part cannot hibernate with a version that is too old": {
			observedCluster(wantHibernating, nil, off, secondMachine(on), func(o *Observed) { o.Incompatible = "x" }), unsupported,
		},
		"a version that is too old does not matter to a running cluster": {
			observedCluster("", nil, on, func(o *Observed) { o.Incompatible, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a cluster that hibernates already goes on with a version that is too old":        {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Incompatible = "x" }), hibernates},
		"a resume is cancelled before the API server has said that it has no version":     {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.Incompatible, o.API = "x", Unreachable }), writeNodes},
		"a cluster with a recorded hibernation is stopped with a version that is too old": {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.Incompatible = "x" }), stop("i-0", "i-1")},

		"an observation error comes before a hibernation":          {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), unknown("machines not observed", hivev1.CloudThrottledReason, maxCloudInterval)},
		"no machines are no hibernation":                           {observedCluster(wantHibernating, openRecord(), ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"no machines are no running cluster":                       {observedCluster("", nil, ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"stopped machines are a hibernation":                       {observedCluster(wantHibernating, openRecord(), off), hibernates},
		"stopped machines are a hibernation without a record, too": {observedCluster(wantHibernating, nil, off), hibernates},

		"nodes are written down before anything stops":                    {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"))), writeNodes},
		"an empty record is written where the API server does not answer": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API = Unreachable }), writeNodes},
		"nodes are written down again after an earlier hibernation":       {observedCluster(wantHibernating, resumedRecord(time.Hour), on), writeNodes},
		"nodes are written down again when a resume is cancelled":         {observedCluster(wantHibernating, resumingRecord(time.Minute), goingOn), writeNodes},
		"running machines are stopped once the nodes are written down":    {observedCluster(wantHibernating, openRecord(), on), stop("i-0", "i-1")},
		"of two machines only the running one is stopped":                 {observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOff)), stop("i-0")},
		"a machine that starts is stopped once it runs":                   {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOn)), waitStop},
		"a machine that is off and paid for is stopped, and is no hibernation": {
			observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), stop("i-1"),
		},
		"a machine that is off and paid for is started like others": {
			observedCluster("Running", resumingRecord(time.Second), off, func(o *Observed) { o.Machines[1].HoldsCapacity = true }), start("i-0", "i-1"),
		},
		"a stopped and a stopping machine are no hibernation yet": {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOff)), waitStop},

		"the resume is written down before anything starts":                 {observedCluster("Running", openRecord(), off), writeResume},
		"a resume is written down where somebody else stopped all machines": {observedCluster("", resumedRecord(time.Hour), off), writeResume},
		"a resume is written down where no record exists":                   {observedCluster("", nil, off), writeResume},
		"machines are started once the resume is written down":              {observedCluster("", resumingRecord(time.Second), off), start("i-0", "i-1")},
		"a starting machine is waited for": {
			observedCluster("", resumingRecord(time.Second), goingOn), waitStart,
		},
		"of two machines only the stopped one is started": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off)),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.StartingMachinesReason, minProbeInterval},
		},
		"beside a starting machine the API server is followed": {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn), apiWithNodes(readyNode("n0"), staleNode("n1"))), followStart},

		"a machine that somebody stopped is started, and the cluster goes on running": {
			observedCluster("", nil, on, secondMachine(off), apiWithNodes()), inPart(StartMachines{[]string{"i-1"}}, retryInterval),
		},
		"a machine that stops beside a running one is waited for": {observedCluster("", nil, on, secondMachine(goingOff), apiWithNodes()), inPart(NoAction{}, retryInterval)},
		"a machine that somebody stopped is started also while the API server is silent": {
			observedCluster("", nil, on, secondMachine(off), func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"awake, API silent", StartMachines{[]string{"i-1"}}, running, hivev1.APIUnreachableReason, retryInterval},
		},
		"a machine without capacity keeps no node from its certificate": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(staleNode("n0"), staleNode("n1")), withRequests("csr-0")),
			expectedPlan{"machines are starting", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.FailedToStartMachinesReason, minProbeInterval},
		},
		"a machine without capacity is waited for with its node": {
			observedCluster("", resumingRecord(partialResumeAfter-time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"a machine without capacity is waited for no longer": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"a machine without capacity is waited for by whoever wants all": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), staleNode("n1")),
				func(o *Observed) { o.AwaitsAllMachines = true }),
			expectedPlan{"machines are starting", StartMachines{[]string{"i-1"}}, starting, hivev1.FailedToStartMachinesReason, maxCloudInterval},
		},
		"a machine without capacity that no node waits for is not waited for": {
			observedCluster("", resumingRecord(time.Minute), on, secondMachine(off), noCapacity, apiWithNodes(readyNode("n0"), readyNode("n1"))),
			inPart(StartMachines{[]string{"i-1"}}, maxCloudInterval),
		},
		"a node that does not come back is waited for no longer": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), inPart(NoAction{}, maxCloudInterval),
		},
		"a cluster without any node is waited for": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(staleNode("n0"), staleNode("n1"))),
			expectedPlan{"waking, nodes not back", NoAction{}, starting, hivev1.WaitingForNodesReason, maxCloudInterval},
		},
		"a machine that cannot be stopped is told": {
			observedCluster(wantHibernating, openRecord(), on, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.Other, "Protected"}, []string{"i-0", "i-1"}}
			}),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.FailedToStopReason, retryInterval},
		},

		"the API server of a resuming cluster is waited for":  {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.API = Unreachable }), waitAPI},
		"the API server of a running cluster is missed":       {observedCluster("", resumedRecord(time.Minute), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), unreachable},
		"a hibernation whose machines run already is resumed": {observedCluster("", openRecord(), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), waitNodes},
		"an API server that stumbles is given time to tell its nodes": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow+time.Second) }),
			expectedPlan{"nodes not read yet", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"an API server that stumbles is given time, but not for ever": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow) }), writeNodes},
		"an API server that stumbles is given time also when the nodes of the last hibernation are known": {
			observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }),
			expectedPlan{"nodes not read yet", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"an API server that stumbles is given no time when a resume is cancelled": {observedCluster(wantHibernating, resumingRecord(time.Minute), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }), writeNodes},
		"a machine that starts beside a running one is no resume":                 {observedCluster("", nil, on, secondMachine(goingOn), apiWithNodes()), runs(driftInterval)},
		"a machine that starts in a resuming cluster is waited for":               {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn)), followStart},
		"a resuming cluster waits for its nodes":                                  {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), waitNodes},
		"a resuming cluster of OpenShift waits for an operator that has not reported": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)), waitOperators,
		},
		"a resuming cluster of OpenShift waits for an operator that is degraded": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), waitOperators,
		},
		"certificates are approved while operators are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour), withRequests("csr-0")),
			expectedPlan{"waking, operators not ready", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForClusterOperatorsReason, minProbeInterval},
		},
		"nodes that are missing come before operators": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1")), withOperator("degraded", time.Second)), waitNodes,
		},
		"a resuming cluster runs when its operators have reported since": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Second)), runs(minAftercareInterval),
		},
		"operators are awaited for ten minutes": {
			observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)), runs(minAftercareInterval),
		},
		"a cluster that cannot show its operators is waited for as long": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), func(o *Observed) { o.OperatorsError = "no answer in time" }), waitOperators,
		},
		"a resuming cluster runs when its nodes are back":          {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), runs(minAftercareInterval)},
		"a resumed cluster is looked after for a while":            {observedCluster("", resumedRecord(aftercareWindow-time.Second), on, apiWithNodes()), runs(maxAftercareInterval)},
		"a cluster that resumed long ago is compared now and then": {observedCluster("", resumedRecord(aftercareWindow), on, apiWithNodes()), runs(driftInterval)},
		"certificates are approved while the nodes are waited for": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")),
			expectedPlan{"waking, nodes not back", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForNodesReason, minProbeInterval},
		},
		"certificates are approved while a resumed cluster is looked after": {
			observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0", "csr-1")),
			expectedPlan{"running", ApproveRequests{[]string{"csr-0", "csr-1"}}, running, running, minProbeInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectPlan(t, row.want, row.in)
		})
	}
}

// expectPlan compares what is decided with what was expected. A probe that is due sooner than the next pass counts as the next look.
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

// notReadyNode reports, but that it is not ready.
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
	return func(o *Observed) { o.Operators = []ObservedOperator{{"etcd", problem, o.Now.Add(-before)}} }
}

func resumingRecord(since time.Duration) *hivev1.HibernationRecord {
	r := openRecord()
	r.SleepStartedAt, r.ResumeStartedAt = secondsAgo(24*time.Hour), new(secondsAgo(since))
	return r
}

// resumedRecord is the record of a hibernation that is over since an exact time.
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
		"a node seen before the resume is not back":          {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(-1))}, []string{"n0"}},
		"a node seen at the very second is not back":         {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since)}, []string{"n0"}},
		"a node seen after the resume began is back":         {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(1))}, nil},
		"a node seen and not ready is not back":              {[]ObservedNode{readyNode("n0")}, []ObservedNode{notReadyNode("n0")}, []string{"n0"}},
		"a node that was not ready is not awaited":           {[]ObservedNode{readyNode("n0"), notReadyNode("n1")}, []ObservedNode{readyNode("n0"), staleNode("n1")}, nil},
		"a node that is gone is not awaited":                 {[]ObservedNode{readyNode("n0"), readyNode("gone")}, []ObservedNode{readyNode("n0")}, nil},
		"a node that is new is not awaited":                  {[]ObservedNode{readyNode("n0")}, []ObservedNode{readyNode("n0"), staleNode("new")}, nil},
		"where all recorded nodes are gone, all others are":  {[]ObservedNode{readyNode("gone")}, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"where no recorded node was ready, all are awaited":  {[]ObservedNode{notReadyNode("n0")}, []ObservedNode{staleNode("n0"), staleNode("n1")}, []string{"n0", "n1"}},
		"where none was recorded, all are awaited":           {nil, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"where none was recorded and all are back, none are": {nil, []ObservedNode{readyNode("n0"), readyNode("n1")}, nil},
		"a cluster without nodes is not back":                {[]ObservedNode{readyNode("n0")}, nil, []string{"any node"}},
		"a cluster that never had nodes is not back":         {nil, nil, []string{"any node"}},
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
		"a hibernation notes who asked and the nodes":       {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"))), fresh(readyNode("n0"), notReadyNode("n1"))},
		"a hibernation forgets nodes that are gone":         {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(readyNode("n0"))), fresh(readyNode("n0"))},
		"a sleep is complete when every machine is stopped": {observedCluster(wantHibernating, openRecord(), off), asleep(openRecord())},
		"a complete sleep is noted once":                    {observedCluster(wantHibernating, openRecord(), off, asleepAt(secondsAgo(time.Hour))), sleptLongAgo},
		"a machine that was switched on ends a complete sleep": {
			observedCluster(wantHibernating, openRecord(), off, secondMachine(on), asleepAt(secondsAgo(time.Hour))), openRecord(),
		},
		"machines that were switched off are a repair":                 {observedCluster("", resumedRecord(time.Hour), off), repair},
		"a hibernation keeps the last nodes where it sees none":        {observedCluster(wantHibernating, resumedRecord(time.Hour), on), fresh(readyNode("n0"), readyNode("n1"))},
		"a hibernation in the middle of a resume keeps the last nodes": {observedCluster(wantHibernating, resumingRecord(time.Minute), off), asleep(fresh(readyNode("n0"), readyNode("n1")))},
		"a hibernation in the middle of a resume takes awaited nodes for ready": {
			observedCluster(wantHibernating, cancelled, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"), notReadyNode("n2"))), fresh(readyNode("n0"), readyNode("n1"), notReadyNode("n2")),
		},
		"a stop keeps the record":               {observedCluster(wantHibernating, openRecord(), on), openRecord()},
		"an observation error keeps the record": {observedCluster("", openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), openRecord()},
		"a pause keeps the record":              {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), openRecord()},
		"a resume begins with the next whole second": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) { o.Record.ResumeStartedAt = nil }), asleep(resumeBegun.DeepCopy()),
		},
		"a resume begins with the next second where it is a whole one already": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) {
				o.Record.ResumeStartedAt, o.Record.AsleepAt, o.Now = nil, asleep(openRecord()).AsleepAt, wholeSecond
			}), asleep(resumeBegun.DeepCopy()),
		},
		"a resume keeps its beginning":                  {observedCluster("", resumingRecord(time.Minute), off), resumingRecord(time.Minute)},
		"a resume ends when the nodes are back":         {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), resumed},
		"a resume ends in the pass that still approves": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), resumed},
		"a cluster that runs keeps what it had":         {observedCluster("", resumedRecord(time.Hour), on, apiWithNodes()), resumedRecord(time.Hour)},
		"a cluster that never hibernated has no record": {observedCluster("", nil, on, apiWithNodes()), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, Decide(row.in).Record); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesNameWhatIsStuck(t *testing.T) {
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
		"machines that stop in time are counted": {
			observedCluster(wantHibernating, slow(lateAfter), goingOff), decision.False(hivev1.StoppingMachinesReason, "Stopping the cluster's 2 machines"),
		},
		"machines that are late are named": {
			observedCluster(wantHibernating, slow(lateAfter+1), goingOff), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"machines that have stopped are not named": {
			observedCluster(wantHibernating, slow(time.Hour), off, secondMachine(goingOff)), decision.False(hivev1.WaitingForMachinesToStopReason, "Waiting for worker (i-1) to stop"),
		},
		"a stop without recorded nodes warns": {observedCluster(wantHibernating, unrecorded, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"a stop with nodes of the last hibernation warns": {observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API = Unreachable }), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, and those of the last hibernation count")},
		"machines that the cloud refuses to start are told in its words": {
			observedCluster("", slowResume(time.Hour), off, func(o *Observed) {
				o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room"}, []string{"i-1"}}
			}),
			decision.False(hivev1.FailedToStartMachinesReason, "No room"),
		},
		"a stop without nodes warns before anything is stopped": {observedCluster(wantHibernating, nil, on), decision.False(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"machines that start in time are counted": {
			observedCluster("", slowResume(lateAfter), goingOn), decision.False(hivev1.StartingMachinesReason, "Starting the cluster's 2 machines"),
		},
		"machines that start late are named": {
			observedCluster("", slowResume(lateAfter+1), on, secondMachine(goingOn)), decision.False(hivev1.WaitingForMachinesReason, "Waiting for worker (i-1) to start"),
		},
		"nodes are named in order": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n1"), staleNode("n0"))),
			decision.False(hivev1.WaitingForNodesReason, "Waiting for nodes to report since the machines were started: n0, n1"),
		},
		"operators are not named while most of them are awaited": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes are back; waiting for ClusterOperators to be ready"),
		},
		"operators that take long are named": {
			observedCluster("", resumingRecord(6*time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
			decision.False(hivev1.WaitingForClusterOperatorsReason, "The nodes are back; waiting for ClusterOperators to be ready: etcd (has not reported)"),
		},
		"a silent API server is quoted": {
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

func TestWhatIsAskedOfACluster(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want []string
	}{
		"a cluster that runs is asked whether it answers":                {observedCluster("", nil, on), []string{"cloud", "cluster"}},
		"a cluster that is about to hibernate is asked for its nodes":    {observedCluster(wantHibernating, nil, on), []string{"cloud", "cluster", "nodes"}},
		"a cluster whose machines stop is left alone":                    {observedCluster(wantHibernating, openRecord(), on), []string{"cloud"}},
		"a cluster that hibernates is left alone":                        {observedCluster(wantHibernating, openRecord(), off), []string{"cloud"}},
		"a cluster whose machines start is left alone":                   {observedCluster("", resumingRecord(time.Minute), actuator.Starting), []string{"cloud"}},
		"a cluster is asked for everything once a machine runs":          {observedCluster("", resumingRecord(time.Minute), on, secondMachine(actuator.Starting)), []string{"cloud", "cluster", "nodes", "requests"}},
		"a resuming cluster is asked for everything":                     {observedCluster("", resumingRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"a cluster that has just resumed is asked for everything":        {observedCluster("", resumedRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"a cluster that resumed long ago is only probed":                 {observedCluster("", resumedRecord(time.Hour), on), []string{"cloud", "cluster"}},
		"without an actuator there is no cloud":                          {observedCluster("", nil, "", func(o *Observed) { o.NoActuator = "x" }), []string{"cluster"}},
		"a cluster that cannot hibernate is asked whether it answers":    {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud", "cluster"}},
		"a cluster that cannot hibernate and is off is left alone":       {observedCluster(wantHibernating, nil, off, func(o *Observed) { o.Incompatible = "x" }), []string{"cloud"}},
		"a cluster whose machines are unknown is only probed":            {observedCluster("", resumingRecord(time.Minute), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud", "cluster"}},
		"a hibernating cluster whose machines are unknown is left alone": {observedCluster("", openRecord(), "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud"}},
		"a paused cluster is only probed":                                {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.Paused = true }), []string{"cluster"}},
		"a paused cluster that hibernates is left alone":                 {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), nil},
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

// TestTroubleIsTold is what a cluster runs without, and which waits have lasted too long.
func TestTroubleIsTold(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	refused := func(class actuator.ErrorClass, ids ...string) func(*Observed) {
		return func(o *Observed) { o.Refusal = &OrderRefusal{ObservationError{class, "The cloud says no"}, ids} }
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
		"a whole cluster": {in: observedCluster("", resumedRecord(time.Hour), on, apiWithNodes())},
		"a machine that somebody stopped": {
			in:       observedCluster("", nil, on, secondMachine(off), apiWithNodes()),
			degraded: decision.True(hivev1.MachinesMissingReason, "The cluster runs without what is missing; machines that do not run: worker (i-1)"),
		},
		"a machine and its node": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.MachinesMissingReason,
				"The cluster runs without what is missing; machines that do not run: worker (i-1); The cloud says no; nodes that have not reported since the resume: n1"),
		},
		"a node": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			degraded: decision.True(hivev1.NodesMissingReason, "The cluster runs without what is missing; nodes that have not reported since the resume: n1"),
		},
		"an operator that is degraded": {
			in:       observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("degraded", time.Second)),
			degraded: decision.True(hivev1.ClusterOperatorsNotReadyReason, "The cluster runs; ClusterOperators were not ready ten minutes after its resume began, and are not waited for any longer: etcd (degraded)"),
		},
		"an operator that only never reported": {
			in: observedCluster("", resumingRecord(partialResumeAfter+time.Second), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withOperator("", time.Hour)),
		},
		"a resume that takes its time": {in: observedCluster("", resumingRecord(stalledAfter-time.Second), on, func(o *Observed) { o.API = Unreachable })},
		"a resume that hangs at the API server": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }),
			stalled: decision.True(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer: no answer in time"),
		},
		"a resume that has to have all machines": {
			in:      observedCluster("", resumingRecord(stalledAfter+time.Second), on, secondMachine(off), refused(actuator.NoCapacity, "i-1"), all, apiWithNodes(readyNode("n0"), staleNode("n1"))),
			stalled: decision.True(hivev1.FailedToStartMachinesReason, "The cloud says no"),
		},
		"a hibernation that hangs": {
			in:      observedCluster(wantHibernating, sleeping(stalledAfter+time.Second), actuator.Stopping),
			stalled: decision.True(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"a hibernation that is refused for good": {
			in:      observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Other, "i-0", "i-1")),
			stalled: decision.True(hivev1.FailedToStopReason, "The cloud says no; no machine is stopped before all can be: remove what keeps these from stopping, or set spec.powerState to Running"),
		},
		"a hibernation that is refused for now": {in: observedCluster(wantHibernating, sleeping(time.Second), on, refused(actuator.Throttled, "i-0", "i-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff([]decision.Condition{row.degraded, row.stalled}, []decision.Condition{p.Degraded, p.Stalled}); diff != "" {
				t.Errorf("degraded and stalled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreachableIsAboutReachabilityOnly has a cluster that answers, and trouble of other kinds.
func TestUnreachableIsAboutReachabilityOnly(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"a throttled call of the cloud": func(o *Observed) { o.ObservationError, o.Machines = throttledError(), nil },
		"a pause":                       func(o *Observed) { o.Paused = true },
		"a version that is too old":     func(o *Observed) { o.DesiredPowerState, o.Incompatible = wantHibernating, "Too old" },
		"a machine that was stopped":    secondMachine(actuator.Stopped),
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster("", nil, actuator.Running, change)
			if !NeedsCluster(o) {
				t.Error("expected the cluster to be asked whether it answers")
			}
			o.API = Reachable
			if got := Decide(o).Unreachable; got != reachableCondition() {
				t.Errorf("found %+v, want the truth about a cluster that answers", got)
			}
			o.API, o.APIMessage = Unreachable, "no answer in time"
			if got := Decide(o).Unreachable; got != decision.True(hivev1.ErrorConnectingToClusterReason, "no answer in time") {
				t.Errorf("found %+v, want the truth about a cluster that is silent", got)
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
		// runs is for how long the cluster has run, which may do so for an hour; without any limit if it is zero.
		runs time.Duration
		want bool
	}{
		"a cluster that answers":                                            {noState, []metav1.Condition{answers}, 0, true},
		"a cluster that is to hibernate":                                    {wantHibernating, []metav1.Condition{answers}, 0, false},
		"a cluster that is to hibernate and cannot":                         {wantHibernating, []metav1.Condition{answers, unsupported}, 0, true},
		"a cluster that is to hibernate, cannot, and is silent":             {wantHibernating, []metav1.Condition{silent, unsupported}, 0, false},
		"a young cluster whose hibernation waits for its SyncSets":          {wantHibernating, []metav1.Condition{answers, awaitsSync}, 9 * time.Minute, true},
		"a cluster whose hibernation has waited for its SyncSets":           {wantHibernating, []metav1.Condition{answers, awaitsSync}, 10 * time.Minute, false},
		"a cluster that may run on":                                         {noState, []metav1.Condition{answers}, 59 * time.Minute, true},
		"a cluster that has run for too long, also before that is reported": {noState, []metav1.Condition{answers}, time.Hour, false},
		"a cluster that has run for too long, and says Running":             {hivev1.PowerStateRunning, []metav1.Condition{answers}, time.Hour, false},
		"a cluster that has run for too long and cannot hibernate":          {noState, []metav1.Condition{answers, unsupported}, time.Hour, true},
		"a cluster that is silent":                                          {noState, []metav1.Condition{silent}, 0, false},
		"a cluster of which nothing is known":                               {noState, []metav1.Condition{reported(hivev1.ClusterUnreachableCondition, metav1.ConditionUnknown, hivev1.NotProbedReason)}, 0, false},
		"a cluster that was never looked at":                                {noState, nil, 0, false},
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
