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

const sleeping = hivev1.PowerStateHibernating

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
		return decision{rule, Nothing{}, reason, reason, after}
	}
	unsupported := decision{"cannot hibernate", Nothing{}, hivev1.UnsupportedHibernationReason, hivev1.UnsupportedHibernationReason, 0}
	stop := func(ids ...string) decision {
		return decision{"stop machines", Stop{ids}, stopping, hivev1.StoppingMachinesReason, minPace}
	}
	start := func(ids ...string) decision {
		return decision{"start machines", Start{ids}, starting, hivev1.StartingMachinesReason, minPace}
	}
	waitStart := decision{"machines are starting", Nothing{}, starting, hivev1.StartingMachinesReason, minPace}
	waitStop := decision{"machines are stopping", Nothing{}, stopping, hivev1.StoppingMachinesReason, minPace}
	writeNodes := decision{"write the nodes down", Nothing{}, stopping, hivev1.StoppingMachinesReason, now}
	writeWake := decision{"write the wake-up down", Nothing{}, starting, hivev1.StartingMachinesReason, now}
	sleeps := decision{"asleep", Nothing{}, asleep, asleep, driftInterval}
	runs := func(after time.Duration) decision { return decision{"running", Nothing{}, running, running, after} }
	deaf := decision{"awake, API silent", Nothing{}, running, hivev1.APIUnreachableReason, retryInterval}
	waitAPI := decision{"waking, API silent", Nothing{}, starting, hivev1.WaitingForAPIReason, fastInterval}
	waitNodes := decision{"waking, nodes not back", Nothing{}, starting, hivev1.WaitingForNodesReason, fastInterval}

	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	for name, row := range map[string]struct {
		in   Observed
		want decision
	}{
		"a deleted cluster is left alone": {with(sleeping, open(), off, func(o *Observed) { o.Deleted = true }), unknown("deleted", hivev1.DeletedReason, 0)},
		"deletion comes before everything else": {
			with(sleeping, nil, on, func(o *Observed) {
				o.Deleted, o.Paused, o.Installed, o.Invalid, o.NoActuator, o.Incompatible, o.Trouble = true, true, false, "x", "x", "x", trouble()
			}), unknown("deleted", hivev1.DeletedReason, 0),
		},
		"a paused cluster is left alone": {with(sleeping, nil, on, func(o *Observed) { o.Paused, o.Installed = true, false }), unknown("paused", hivev1.PausedReason, 0)},
		"a cluster that is being installed is left alone": {
			with(sleeping, nil, on, func(o *Observed) { o.Installed, o.Invalid = false, "x" }), unknown("not installed", hivev1.NotInstalledReason, 0),
		},
		"a spec without fields is named before the platform": {
			with(sleeping, nil, on, func(o *Observed) { o.Invalid, o.NoActuator = "x", "x" }), unknown("invalid spec", hivev1.InvalidSpecReason, 0),
		},

		"a platform without an actuator cannot sleep": {with(sleeping, nil, "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"it cannot sleep on either, nobody can look":  {with(sleeping, open(), "", func(o *Observed) { o.NoActuator = "x" }), unsupported},
		"it runs as long as nobody asks for more": {
			with("", nil, "", func(o *Observed) { o.NoActuator, o.API = "x", Reachable }), runs(driftInterval),
		},
		"it is probed like others": {with("", nil, "", func(o *Observed) { o.NoActuator, o.API, o.APIMessage = "x", Unreachable, "x" }), deaf},
		"a version that is too old cannot sleep, whatever the cloud says": {
			with(sleeping, nil, on, func(o *Observed) { o.Incompatible, o.Trouble = "x", trouble() }), unsupported,
		},
		"a version that is too old does not matter to a running cluster": {
			with("", nil, on, func(o *Observed) { o.Incompatible, o.API = "x", Reachable }), runs(driftInterval),
		},
		"a cluster that sleeps already sleeps on with it": {with(sleeping, open(), off, func(o *Observed) { o.Incompatible = "x" }), sleeps},
		"and goes on to stop":                             {with(sleeping, open(), on, func(o *Observed) { o.Incompatible = "x" }), stop("i-0", "i-1")},

		"trouble comes before sleep":    {with(sleeping, open(), on, func(o *Observed) { o.Trouble = trouble() }), unknown("machines not observed", hivev1.CloudThrottledReason, maxPace)},
		"no machines are no sleep":      {with(sleeping, open(), ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"no machines are no running":    {with("", nil, ""), unknown("no machines", hivev1.NoMachinesFoundReason, retryInterval)},
		"stopped machines are a sleep":  {with(sleeping, open(), off), sleeps},
		"also where nobody recorded it": {with(sleeping, nil, off), sleeps},

		"nodes are written down before anything stops":        {with(sleeping, nil, on, answering(node("n0"))), writeNodes},
		"also where the API server is silent":                 {with(sleeping, nil, on, func(o *Observed) { o.API = Unreachable }), writeNodes},
		"also after an earlier sleep":                         {with(sleeping, finished(time.Hour), on), writeNodes},
		"also where a resume is cancelled":                    {with(sleeping, wakingSince(time.Minute), goingOn), writeNodes},
		"running machines are stopped once they are":          {with(sleeping, open(), on), stop("i-0", "i-1")},
		"of two machines only the running one is stopped":     {with(sleeping, open(), on, second(goingOff)), stop("i-0")},
		"a machine that starts is stopped once it runs":       {with(sleeping, open(), off, second(goingOn)), waitStop},
		"a stopped and a stopping machine are not asleep yet": {with(sleeping, open(), off, second(goingOff)), waitStop},

		"the wake-up is written down before anything starts": {with("Running", open(), off), writeWake},
		"also where somebody else stopped a machine":         {with("", finished(time.Hour), on, second(off)), writeWake},
		"also where Torpor never was":                        {with("", nil, on, second(off)), writeWake},
		"then machines are started":                          {with("", wakingSince(time.Second), off), start("i-0", "i-1")},
		"of two machines only the stopped one is started":    {with("", wakingSince(time.Second), on, second(off)), start("i-1")},
		"a stopping machine is waited for":                   {with("", nil, on, second(goingOff)), waitStart},
		"a starting machine is waited for":                   {with("", wakingSince(time.Second), on, second(goingOn)), waitStart},

		"a woken cluster may be silent":     {with("", wakingSince(time.Minute), on, func(o *Observed) { o.API = Unreachable }), waitAPI},
		"a cluster that is awake may not":   {with("", finished(time.Minute), on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "x" }), deaf},
		"an unfinished sleep is woken anew": {with("", open(), on, answering(node("n0"), node("n1"))), waitNodes},
		"an API server that stumbles is given time to tell its nodes": {
			with(sleeping, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-readPatience+time.Second) }),
			decision{"nodes not read yet", Nothing{}, stopping, hivev1.RecordingNodesReason, minPace},
		},
		"but not for ever": {with(sleeping, nil, on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now.Add(-readPatience) }), writeNodes},
		"nor when the nodes are known from the last sleep":              {with(sleeping, finished(time.Hour), on, func(o *Observed) { o.API, o.RequestedAt = Unreachable, o.Now }), writeNodes},
		"a machine that is new beside a running one is nobody's resume": {with("", nil, on, second(goingOn), answering()), runs(driftInterval)},
		"of a cluster that wakes it is one of its own":                  {with("", wakingSince(time.Second), on, second(goingOn)), waitStart},
		"a woken cluster waits for its nodes":                           {with("", wakingSince(time.Minute), on, answering(node("n0"), stale("n1"))), waitNodes},
		"it runs when they are back":                                    {with("", wakingSince(time.Minute), on, answering(node("n0"), node("n1"))), runs(minCare)},
		"it is looked after for a while":                                {with("", finished(aftercareWindow-time.Second), on, answering()), runs(maxCare)},
		"and then compared now and then":                                {with("", finished(aftercareWindow), on, answering()), runs(driftInterval)},
		"certificates are approved while it waits": {
			with("", wakingSince(time.Minute), on, answering(stale("n0")), asking("csr-0")),
			decision{"approve certificates", Approve{[]string{"csr-0"}}, starting, hivev1.WaitingForNodesReason, now},
		},
		"certificates are approved while it is looked after": {
			with("", finished(time.Minute), on, answering(), asking("csr-0", "csr-1")),
			decision{"approve certificates", Approve{[]string{"csr-0", "csr-1"}}, running, running, now},
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

// with is a cluster of two machines in the same state, none if that is empty.
func with(want hivev1.PowerState, record *hivev1.HibernationRecord, machines actuator.State, but ...func(*Observed)) Observed {
	o := Observed{Now: worldTime(), Installed: true, Want: want, RequestedBy: "somebody", Record: record}
	if machines != "" {
		o.Machines = []actuator.Machine{{ID: "i-0", State: machines}, {ID: "i-1", Name: "worker", State: machines}}
	}
	for _, change := range but {
		change(&o)
	}
	return o
}

func second(s actuator.State) func(*Observed) { return func(o *Observed) { o.Machines[1].State = s } }

func answering(nodes ...Node) func(*Observed) {
	return func(o *Observed) { o.API, o.Nodes = Reachable, nodes }
}

func asking(requests ...string) func(*Observed) {
	return func(o *Observed) { o.Approvable = requests }
}

func trouble() *Trouble { return &Trouble{Class: actuator.Throttled, Message: "Slow down"} }

func node(name string) Node {
	return Node{RecordedNode: hivev1.RecordedNode{Name: name, UID: "uid-" + name, Ready: true}, LastSeen: worldTime()}
}

func stale(name string) Node {
	n := node(name)
	n.LastSeen = worldTime().Add(-time.Hour)
	return n
}

// unwell reports, but that it is not ready.
func unwell(name string) Node {
	n := node(name)
	n.Ready = false
	return n
}

func recordedNodes(nodes ...Node) []hivev1.RecordedNode {
	var list []hivev1.RecordedNode
	for _, n := range nodes {
		list = append(list, n.RecordedNode)
	}
	return list
}

// open is the record of a sleep that just began.
func open() *hivev1.HibernationRecord {
	return &hivev1.HibernationRecord{SleepStartedAt: ago(time.Second), RequestedBy: "somebody", Nodes: recordedNodes(node("n0"), node("n1"))}
}

func wakingSince(since time.Duration) *hivev1.HibernationRecord {
	r := open()
	r.SleepStartedAt, r.ResumeStartedAt = ago(24*time.Hour), new(ago(since))
	return r
}

// finished is the record of a sleep that is over since an exact time.
func finished(since time.Duration) *hivev1.HibernationRecord {
	r := wakingSince(since + time.Minute)
	r.ResumedAt = new(metav1.NewTime(worldTime().Add(-since)))
	return r
}

func TestNodesAreAwaited(t *testing.T) {
	since := wakingSince(time.Minute).ResumeStartedAt.Time
	seen := func(n Node, at time.Time) Node {
		n.LastSeen = at
		return n
	}
	for name, row := range map[string]struct {
		recorded []Node
		nodes    []Node
		want     []string
	}{
		"seen before the wake-up is not back":                {[]Node{node("n0")}, []Node{seen(node("n0"), since.Add(-1))}, []string{"n0"}},
		"seen at the very second is not back":                {[]Node{node("n0")}, []Node{seen(node("n0"), since)}, []string{"n0"}},
		"seen after it is back":                              {[]Node{node("n0")}, []Node{seen(node("n0"), since.Add(1))}, nil},
		"seen and not ready is not back":                     {[]Node{node("n0")}, []Node{unwell("n0")}, []string{"n0"}},
		"a node that was not ready is not awaited":           {[]Node{node("n0"), unwell("n1")}, []Node{node("n0"), stale("n1")}, nil},
		"a node that is gone is not awaited":                 {[]Node{node("n0"), node("gone")}, []Node{node("n0")}, nil},
		"a node that is new is not awaited":                  {[]Node{node("n0")}, []Node{node("n0"), stale("new")}, nil},
		"where all recorded nodes are gone, all others are":  {[]Node{node("gone")}, []Node{stale("n0"), node("n1")}, []string{"n0"}},
		"where no recorded node was ready, all are awaited":  {[]Node{unwell("n0")}, []Node{stale("n0"), stale("n1")}, []string{"n0", "n1"}},
		"where none was recorded, all are awaited":           {nil, []Node{stale("n0"), node("n1")}, []string{"n0"}},
		"where none was recorded and all are back, none are": {nil, []Node{node("n0"), node("n1")}, nil},
		"a cluster without nodes is not back":                {[]Node{node("n0")}, nil, []string{"any node"}},
		"nor is one that never had any":                      {nil, nil, []string{"any node"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := wakingSince(time.Minute)
			r.Nodes = recordedNodes(row.recorded...)
			o := with("", r, actuator.Running, answering(row.nodes...))
			if diff := cmp.Diff(row.want, o.missing()); diff != "" {
				t.Errorf("missing nodes (-want +got):\n%s", diff)
			}
			if got := Decide(o).Ready.Status == metav1.ConditionTrue; got != (len(row.want) == 0) {
				t.Errorf("expected ready to be %v, found %v", len(row.want) == 0, got)
			}
		})
	}
}

func TestRecords(t *testing.T) {
	cancelled := wakingSince(time.Minute)
	cancelled.Nodes = recordedNodes(node("n0"), node("n1"), unwell("n2"))
	wholeSecond := worldTime().Truncate(time.Second)
	woken := wakingSince(0)
	woken.ResumeStartedAt = new(metav1.NewTime(wholeSecond.Add(time.Second)))
	resumed := wakingSince(time.Minute)
	resumed.ResumedAt = new(metav1.NewTime(worldTime()))
	fresh := func(nodes ...Node) *hivev1.HibernationRecord {
		return &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(worldTime()), RequestedBy: "somebody", Nodes: recordedNodes(nodes...)}
	}
	const on, off = actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want *hivev1.HibernationRecord
	}{
		"a sleep notes who asked and the nodes":             {with(sleeping, nil, on, answering(node("n0"), unwell("n1"))), fresh(node("n0"), unwell("n1"))},
		"it forgets nodes that are gone":                    {with(sleeping, finished(time.Hour), on, answering(node("n0"))), fresh(node("n0"))},
		"it keeps the last nodes where it sees none":        {with(sleeping, finished(time.Hour), on), fresh(node("n0"), node("n1"))},
		"a sleep in the middle of a resume does so as well": {with(sleeping, wakingSince(time.Minute), off), fresh(node("n0"), node("n1"))},
		"it does not take a node for unwell that only slept": {
			with(sleeping, cancelled, on, answering(node("n0"), unwell("n1"), unwell("n2"))), fresh(node("n0"), node("n1"), unwell("n2")),
		},
		"a stop keeps the record": {with(sleeping, open(), on), open()},
		"a sleep keeps it":        {with(sleeping, open(), off), open()},
		"trouble keeps it":        {with("", open(), on, func(o *Observed) { o.Trouble = trouble() }), open()},
		"a pause keeps it":        {with("", open(), on, func(o *Observed) { o.Paused = true }), open()},
		"a wake-up begins with the next whole second": {
			with("", wakingSince(0), off, func(o *Observed) { o.Record.ResumeStartedAt = nil }), woken,
		},
		"even where it is one already": {
			with("", wakingSince(0), off, func(o *Observed) { o.Record.ResumeStartedAt, o.Now = nil, wholeSecond }), woken,
		},
		"a wake-up keeps its beginning":         {with("", wakingSince(time.Minute), off), wakingSince(time.Minute)},
		"it ends when the nodes are back":       {with("", wakingSince(time.Minute), on, answering(node("n0"), node("n1"))), resumed},
		"also in the pass that still approves":  {with("", wakingSince(time.Minute), on, answering(node("n0"), node("n1")), asking("csr-0")), resumed},
		"a cluster that runs keeps what it had": {with("", finished(time.Hour), on, answering()), finished(time.Hour)},
		"a cluster that never slept has none":   {with("", nil, on, answering()), nil},
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
		r := open()
		r.SleepStartedAt = metav1.NewTime(worldTime().Add(-late))
		return r
	}
	slowWake := func(late time.Duration) *hivev1.HibernationRecord {
		r := wakingSince(0)
		r.ResumeStartedAt = new(metav1.NewTime(worldTime().Add(-late)))
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
			with(sleeping, slow(lateAfter), goingOff), isFalse(hivev1.StoppingMachinesReason, "Stopping the cluster's 2 machines"),
		},
		"machines that are late are named": {
			with(sleeping, slow(lateAfter+1), goingOff), isFalse(hivev1.WaitingForMachinesToStopReason, "Waiting for i-0, worker (i-1) to stop"),
		},
		"those that have stopped are not": {
			with(sleeping, slow(time.Hour), off, second(goingOff)), isFalse(hivev1.WaitingForMachinesToStopReason, "Waiting for worker (i-1) to stop"),
		},
		"a stop without recorded nodes warns": {with(sleeping, unrecorded, on), isFalse(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"before anything is stopped, too": {with(sleeping, nil, on), isFalse(hivev1.StoppingMachinesReason,
			"Stopping the cluster's 2 machines; its nodes could not be written down, so their certificates may have to be approved by hand at the wake-up")},
		"machines that start in time are counted": {
			with("", slowWake(lateAfter), goingOn), isFalse(hivev1.StartingMachinesReason, "Starting the cluster's 2 machines"),
		},
		"machines that start late are named": {
			with("", slowWake(lateAfter+1), on, second(goingOn)), isFalse(hivev1.WaitingForMachinesReason, "Waiting for worker (i-1) to start"),
		},
		"nodes are named in order": {
			with("", wakingSince(time.Minute), on, answering(stale("n1"), stale("n0"))),
			isFalse(hivev1.WaitingForNodesReason, "Waiting for nodes to report since the machines were started: n0, n1"),
		},
		"a silent API server is quoted": {
			with("", nil, on, func(o *Observed) { o.API, o.APIMessage = Unreachable, "Connection refused" }),
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

func TestOnlyASafeClusterIsDialled(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want []string
	}{
		"a cluster that runs is asked whether it answers":         {with("", nil, on), []string{"cloud", "cluster"}},
		"one that is about to sleep tells its nodes":              {with(sleeping, nil, on), []string{"cloud", "cluster", "nodes"}},
		"one that goes to sleep is left alone":                    {with(sleeping, open(), on), []string{"cloud"}},
		"one that sleeps is left alone":                           {with(sleeping, open(), off), []string{"cloud"}},
		"one whose machines start is left alone":                  {with("", wakingSince(time.Minute), on, second(actuator.Starting)), []string{"cloud"}},
		"one that wakes is asked for everything":                  {with("", wakingSince(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"one that has just woken too":                             {with("", finished(time.Minute), on), []string{"cloud", "cluster", "nodes", "requests"}},
		"one that woke long ago is not":                           {with("", finished(time.Hour), on), []string{"cloud", "cluster"}},
		"without an actuator there is no cloud":                   {with("", nil, "", func(o *Observed) { o.NoActuator = "x" }), []string{"cluster"}},
		"what cannot sleep is left alone":                         {with(sleeping, nil, on, func(o *Observed) { o.Incompatible = "x" }), nil},
		"with a trouble nobody knows whether it could be reached": {with("", nil, "", func(o *Observed) { o.Trouble = trouble() }), []string{"cloud"}},
		"a pause is a pause":                                      {with("", wakingSince(time.Minute), on, func(o *Observed) { o.Paused = true }), nil},
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
