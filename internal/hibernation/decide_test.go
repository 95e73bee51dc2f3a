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
)

const wantHibernating = hivev1.PowerStateHibernating

// decision is what most rows are about: the rule, the effect, and the reasons of Hibernating and Ready.
type decision struct {
	Rule               string
	Do                 Action
	Hibernating, Ready string
	After              time.Duration
}

func TestDecide(t *testing.T) {
	stopping, starting := hivev1.StoppingHibernationReason, hivev1.ResumingHibernationReason
	running, asleep := hivev1.RunningHibernationReason, hivev1.HibernatingHibernationReason
	unknown := func(rule, reason string, after time.Duration) decision {
		return decision{rule, NoAction{}, reason, reason, after}
	}
	unsupported := decision{"cannot hibernate", NoAction{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, 0}
	stop := func(ids ...string) decision {
		return decision{"stop machines", StopMachines{ids}, stopping, hivev1.StoppingMachinesReason, minCloudInterval}
	}
	start := func(ids ...string) decision {
		return decision{"start machines", StartMachines{ids}, starting, hivev1.StartingMachinesReason, minCloudInterval}
	}
	waitStart := decision{"machines are starting", NoAction{}, starting, hivev1.StartingMachinesReason, minCloudInterval}
	waitStop := decision{"machines are stopping", NoAction{}, stopping, hivev1.StoppingMachinesReason, minCloudInterval}
	writeNodes := decision{"write the nodes down", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately}
	writeWake := decision{"write the wake-up down", NoAction{}, starting, hivev1.StartingMachinesReason, immediately}
	sleeps := decision{"asleep", NoAction{}, asleep, asleep, driftInterval}
	runs := func(after time.Duration) decision { return decision{"running", NoAction{}, running, running, after} }
	deaf := decision{"awake, API silent", NoAction{}, running, hivev1.APIUnreachableReason, retryInterval}
	waitAPI := decision{"waking, API silent", NoAction{}, starting, hivev1.WaitingForAPIReason, minProbeInterval}
	waitNodes := decision{"waking, nodes not back", NoAction{}, starting, hivev1.WaitingForNodesReason, minProbeInterval}

	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want decision
	}{
		"a deleted cluster is left alone": {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Deleted = true }), unknown("deleted", hivev1.DeletedReason, 0)},
		"deletion comes before everything else": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) {
				o.Deleted, o.Paused, o.Installed, o.Invalid, o.NoActuator, o.Incompatible, o.ObservationError = true, true, false, "x", "x", "x", throttledError()
			}), unknown("deleted", hivev1.DeletedReason, 0),
		},
		"a paused cluster is left alone": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Paused, o.Installed = true, false }), unknown("paused", hivev1.PausedReason, 0)},
		"a cluster that is being installed is left alone": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Installed, o.Invalid = false, "x" }), unknown("not installed", hivev1.NotInstalledReason, 0),
		},
		"a spec without fields is named before the platform": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Invalid, o.NoActuator = "x", "x" }), unknown("invalid spec", hivev1.InvalidSpecReason, 0),
		},

		"a platform without an actuator cannot sleep": {observedCluster(wantHibernating, nil, "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"it cannot sleep on either, nobody can look":  {observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"it runs as long as nobody asks for more": {
			observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), runs(driftInterval),
		},
		"it is probed like others": {observedCluster("", nil, "", func(o *Observed) { o.NoActuator, o.API, o.APIMessage = "x", Unreachable, "x" }), deaf},
		"a version that is too old cannot sleep, whatever the cloud says": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible, o.ObservationError = "x", throttledError() }), unsupported,
		},
		"a version that is too old does not matter to a running cluster": {
			observedCluster("", nil, on, func(o *Observed) { o.Incompatible, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a cluster that sleeps already sleeps on with it": {observedCluster(wantHibernating, openRecord(), off, func(o *Observed) { o.Incompatible = "x" }), sleeps},
		"and goes on to stop":                             {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.Incompatible = "x" }), stop("i-0", "i-1")},

		"trouble comes before sleep":    {observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), unknown("machines not observed", hivev1.CloudThrottledReason, maxCloudInterval)},
		"no machines are no sleep":      {observedCluster(wantHibernating, openRecord(), ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"no machines are no running":    {observedCluster("", nil, ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"stopped machines are a sleep":  {observedCluster(wantHibernating, openRecord(), off), sleeps},
		"also where nobody recorded it": {observedCluster(wantHibernating, nil, off), sleeps},

		"nodes are written down before anything stops":        {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"))), writeNodes},
		"also where the API server is silent":                 {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API = Unreachable }), writeNodes},
		"also after an earlier sleep":                         {observedCluster(wantHibernating, resumedRecord(time.Hour), on), writeNodes},
		"also where a resume is cancelled":                    {observedCluster(wantHibernating, resumingRecord(time.Minute), goingOn), writeNodes},
		"running machines are stopped once they are":          {observedCluster(wantHibernating, openRecord(), on), stop("i-0", "i-1")},
		"of two machines only the running one is stopped":     {observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOff)), stop("i-0")},
		"a machine that starts is stopped once it runs":       {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOn)), waitStop},
		"a stopped and a stopping machine are not asleep yet": {observedCluster(wantHibernating, openRecord(), off, secondMachine(goingOff)), waitStop},

		"the wake-up is written down before anything starts": {observedCluster("Running", openRecord(), off), writeWake},
		"also where somebody else stopped a machine":         {observedCluster("", resumedRecord(time.Hour), on, secondMachine(off)), writeWake},
		"also where Torpor never was":                        {observedCluster("", nil, on, secondMachine(off)), writeWake},
		"then machines are started":                          {observedCluster("", resumingRecord(time.Second), off), start("i-0", "i-1")},
		"of two machines only the stopped one is started":    {observedCluster("", resumingRecord(time.Second), on, secondMachine(off)), start("i-1")},
		"a stopping machine is waited for":                   {observedCluster("", nil, on, secondMachine(goingOff)), waitStart},
		"a starting machine is waited for":                   {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn)), waitStart},

		"a woken cluster may be silent":     {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.API = Unreachable }), waitAPI},
		"a cluster that is awake may not":   {observedCluster("", resumedRecord(time.Minute), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), deaf},
		"an unfinished sleep is woken anew": {observedCluster("", openRecord(), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), waitNodes},
		"an API server that stumbles is given time to tell its nodes": {
			observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow+time.Second) }),
			decision{"nodes not read yet", NoAction{}, stopping, hivev1.RecordingNodesReason, minCloudInterval},
		},
		"but not for ever": {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-nodeRecordWindow) }), writeNodes},
		"nor when the nodes are known from the last sleep":              {observedCluster(wantHibernating, resumedRecord(time.Hour), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }), writeNodes},
		"a machine that is new beside a running one is nobody's resume": {observedCluster("", nil, on, secondMachine(goingOn), apiWithNodes()), runs(driftInterval)},
		"of a cluster that wakes it is one of its own":                  {observedCluster("", resumingRecord(time.Second), on, secondMachine(goingOn)), waitStart},
		"a woken cluster waits for its nodes":                           {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), staleNode("n1"))), waitNodes},
		"it runs when they are back":                                    {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), runs(minAftercareInterval)},
		"it is looked after for a while":                                {observedCluster("", resumedRecord(aftercareWindow-time.Second), on, apiWithNodes()), runs(maxAftercareInterval)},
		"and then compared now and then":                                {observedCluster("", resumedRecord(aftercareWindow), on, apiWithNodes()), runs(driftInterval)},
		"certificates are approved while it waits": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")),
			decision{"approve certificates", ApproveRequests{[]string{"csr-0"}}, starting, hivev1.WaitingForNodesReason, immediately},
		},
		"certificates are approved while it is looked after": {
			observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0", "csr-1")),
			decision{"approve certificates", ApproveRequests{[]string{"csr-0", "csr-1"}}, running, running, immediately},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			got := decision{p.Rule, p.Do, p.Hibernating.Reason, p.Ready.Reason, p.After}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
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

// openRecord is the record of a sleep that just began.
func openRecord() *hivev1.HibernationRecord {
	return &hivev1.HibernationRecord{SleepStartedAt: secondsAgo(time.Second), RequestedBy: "somebody", Nodes: recordedNodes(readyNode("n0"), readyNode("n1"))}
}

func resumingRecord(since time.Duration) *hivev1.HibernationRecord {
	r := openRecord()
	r.SleepStartedAt, r.ResumeStartedAt = secondsAgo(24*time.Hour), new(secondsAgo(since))
	return r
}

// resumedRecord is the record of a sleep that is over since an exact time.
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
		"seen before the wake-up is not back":                {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(-1))}, []string{"n0"}},
		"seen at the very second is not back":                {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since)}, []string{"n0"}},
		"seen after it is back":                              {[]ObservedNode{readyNode("n0")}, []ObservedNode{seen(readyNode("n0"), since.Add(1))}, nil},
		"seen and not ready is not back":                     {[]ObservedNode{readyNode("n0")}, []ObservedNode{notReadyNode("n0")}, []string{"n0"}},
		"a node that was not ready is not awaited":           {[]ObservedNode{readyNode("n0"), notReadyNode("n1")}, []ObservedNode{readyNode("n0"), staleNode("n1")}, nil},
		"a node that is gone is not awaited":                 {[]ObservedNode{readyNode("n0"), readyNode("gone")}, []ObservedNode{readyNode("n0")}, nil},
		"a node that is new is not awaited":                  {[]ObservedNode{readyNode("n0")}, []ObservedNode{readyNode("n0"), staleNode("new")}, nil},
		"where all recorded nodes are gone, all others are":  {[]ObservedNode{readyNode("gone")}, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"where no recorded node was ready, all are awaited":  {[]ObservedNode{notReadyNode("n0")}, []ObservedNode{staleNode("n0"), staleNode("n1")}, []string{"n0", "n1"}},
		"where none was recorded, all are awaited":           {nil, []ObservedNode{staleNode("n0"), readyNode("n1")}, []string{"n0"}},
		"where none was recorded and all are back, none are": {nil, []ObservedNode{readyNode("n0"), readyNode("n1")}, nil},
		"a cluster without nodes is not back":                {[]ObservedNode{readyNode("n0")}, nil, []string{"any node"}},
		"nor is one that never had any":                      {nil, nil, []string{"any node"}},
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
	woken := resumingRecord(0)
	woken.ResumeStartedAt = new(metav1.NewTime(wholeSecond.Add(time.Second)))
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
		"a sleep notes who asked and the nodes":             {observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"))), fresh(readyNode("n0"), notReadyNode("n1"))},
		"it forgets nodes that are gone":                    {observedCluster(wantHibernating, resumedRecord(time.Hour), on, apiWithNodes(readyNode("n0"))), fresh(readyNode("n0"))},
		"it keeps the last nodes where it sees none":        {observedCluster(wantHibernating, resumedRecord(time.Hour), on), fresh(readyNode("n0"), readyNode("n1"))},
		"a sleep in the middle of a resume does so as well": {observedCluster(wantHibernating, resumingRecord(time.Minute), off), fresh(readyNode("n0"), readyNode("n1"))},
		"it does not take a node for unwell that only slept": {
			observedCluster(wantHibernating, cancelled, on, apiWithNodes(readyNode("n0"), notReadyNode("n1"), notReadyNode("n2"))), fresh(readyNode("n0"), readyNode("n1"), notReadyNode("n2")),
		},
		"a stop keeps the record": {observedCluster(wantHibernating, openRecord(), on), openRecord()},
		"a sleep keeps it":        {observedCluster(wantHibernating, openRecord(), off), openRecord()},
		"trouble keeps it":        {observedCluster("", openRecord(), on, func(o *Observed) { o.ObservationError = throttledError() }), openRecord()},
		"a pause keeps it":        {observedCluster("", openRecord(), on, func(o *Observed) { o.Paused = true }), openRecord()},
		"a wake-up begins with the next whole second": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) { o.Record.ResumeStartedAt = nil }), woken,
		},
		"even where it is one already": {
			observedCluster("", resumingRecord(0), off, func(o *Observed) { o.Record.ResumeStartedAt, o.Now = nil, wholeSecond }), woken,
		},
		"a wake-up keeps its beginning":         {observedCluster("", resumingRecord(time.Minute), off), resumingRecord(time.Minute)},
		"it ends when the nodes are back":       {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1"))), resumed},
		"also in the pass that still approves":  {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), resumed},
		"a cluster that runs keeps what it had": {observedCluster("", resumedRecord(time.Hour), on, apiWithNodes()), resumedRecord(time.Hour)},
		"a cluster that never slept has none":   {observedCluster("", nil, on, apiWithNodes()), nil},
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
	slowWake := func(late time.Duration) *hivev1.HibernationRecord {
		r := resumingRecord(0)
		r.ResumeStartedAt = new(metav1.NewTime(modelTime().Add(-late)))
		return r
	}
	unrecorded := slow(0)
	unrecorded.Nodes = nil
	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want Condition
	}{
		"machines that stop in time are counted": {
			observedCluster(wantHibernating, slow(lateAfter), goingOff), isFalse(hivev1.StoppingMachinesReason, "Stopping the cluster's 2 machines"),
		},
		"machines that are late are named": {
			observedCluster(wantHibernating, slow(lateAfter+1), goingOff), isFalse(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"those that have stopped are not": {
			observedCluster(wantHibernating, slow(time.Hour), off, secondMachine(goingOff)), isFalse(hivev1.WaitingForMachinesToStopReason, "Waiting for worker (i-1) to stop"),
		},
		"a stop without recorded nodes warns": {observedCluster(wantHibernating, unrecorded, on), isFalse(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"before anything is stopped, too": {observedCluster(wantHibernating, nil, on), isFalse(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"machines that start in time are counted": {
			observedCluster("", slowWake(lateAfter), goingOn), isFalse(hivev1.StartingMachinesReason, "Starting the cluster's 2 machines"),
		},
		"machines that start late are named": {
			observedCluster("", slowWake(lateAfter+1), on, secondMachine(goingOn)), isFalse(hivev1.WaitingForMachinesReason, "Waiting for worker (i-1) to start"),
		},
		"nodes are named in order": {
			observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n1"), staleNode("n0"))),
			isFalse(hivev1.WaitingForNodesReason, "Waiting for nodes to report since the machines were started: n0, n1"),
		},
		"a silent API server is quoted": {
			observedCluster("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "Connection refused" }),
			isFalse(hivev1.APIUnreachableReason, "The API server does not answer: Connection refused"),
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
		"a cluster that runs is asked whether it answers":         {observedCluster("", nil, on), []string{"cloud", "cluster"}},
		"one that is about to sleep tells its nodes":              {observedCluster(wantHibernating, nil, on), []string{"cloud", "cluster", "nodes"}},
		"one that goes to sleep is left alone":                    {observedCluster(wantHibernating, openRecord(), on), []string{"cloud"}},
		"one that sleeps is left alone":                           {observedCluster(wantHibernating, openRecord(), off), []string{"cloud"}},
		"one whose machines start is left alone":                  {observedCluster("", resumingRecord(time.Minute), on, secondMachine(actuator.Starting)), []string{"cloud"}},
		"one that wakes is asked for everything":                  {observedCluster("", resumingRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"one that has just woken too":                             {observedCluster("", resumedRecord(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"one that woke long ago is not":                           {observedCluster("", resumedRecord(time.Hour), on), []string{"cloud", "cluster"}},
		"without an actuator there is no cloud":                   {observedCluster("", nil, "", func(o *Observed) { o.NoActuator = "x" }), []string{"cluster"}},
		"what cannot sleep is left alone":                         {observedCluster(wantHibernating, nil, on, func(o *Observed) { o.Incompatible = "x" }), nil},
		"with a trouble nobody knows whether it could be reached": {observedCluster("", nil, "", func(o *Observed) { o.ObservationError = throttledError() }), []string{"cloud"}},
		"a pause is a pause":                                      {observedCluster("", resumingRecord(time.Minute), on, func(o *Observed) { o.Paused = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			asks := map[string]bool{
				"cloud": NeedsCloud(row.in), "cluster": NeedsCluster(row.in), "nodes": NeedsNodes(row.in), "requests": NeedsRequests(row.in),
			}
			for kind, asked := range asks {
				if asked != slices.Contains(row.want, kind) {
					t.Errorf("expected the %s to be asked: %v, found %v", kind, !asked, asked)
				}
			}
		})
	}
}
