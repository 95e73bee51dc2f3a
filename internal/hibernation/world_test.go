// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The toy world: a cluster of two machines, its cloud and what is saved of it, as one comparable value.
// Machines need passes to stop and start, the API server answers only a while after the first machine runs, and a node
// whose machine was off reports only after its request for a client certificate was approved, then asks for a serving one.
// The second machine is slower, and its node asks when the first one is back.
// Times are ages, so that the same situation is the same value whenever it occurs.
type world struct {
	wish     hivev1.PowerState
	machines [2]toyMachine
	// api counts the passes since the first machine runs, up to apiBoot.
	api   int
	nodes [2]toyNode
	// sleep and told are the saved status.
	sleep toyRecord
	told  told
}

type toyMachine struct {
	state actuator.State
	// left is how many passes a transition still takes.
	left int
}

type toyNode struct {
	certificate certificate
	ready       bool
	seen        age
}

// toyRecord is a HibernationRecord, comparable.
type toyRecord struct {
	exists                        bool
	sleepStarted, resume, resumed age
	nodes                         [2]recorded
}

type told struct{ hibernating, ready, unreachable Condition }

type (
	certificate string
	recorded    string
	age         time.Duration
)

const (
	expired      certificate = "expired"
	clientAsked  certificate = "client certificate asked for"
	clientValid  certificate = "client certificate valid"
	servingAsked certificate = "serving certificate asked for"
	allValid     certificate = "all certificates valid"

	notRecorded    recorded = "not recorded"
	recordedUnwell recorded = "recorded, not ready"
	recordedReady  recorded = "recorded, ready"

	never age = -1 << 63
	// forever is older than every age that a decision looks at.
	forever = age(12 * time.Minute)

	apiBoot = 4
	// unseenFor is how long a cluster believes a node that does not report.
	unseenFor = age(40 * time.Second)
	// stride is how far time leaps while nothing happens.
	stride = 3 * time.Minute
)

// worldTime is the toy world's only instant; its fraction is what the API server forgets.
func worldTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 300_000_000, time.UTC) }

func (a age) plus(d time.Duration) age {
	if a == never {
		return never
	}
	return min(a+age(d), forever)
}

func (a age) at() *metav1.Time {
	if a == never {
		return nil
	}
	return new(metav1.NewTime(worldTime().Add(-time.Duration(a))))
}

func ageOf(t *metav1.Time) age {
	if t == nil {
		return never
	}
	return min(age(worldTime().Sub(t.Truncate(time.Second))), forever)
}

// slowness is how many passes a machine takes to stop or start.
func slowness(i int) int { return [...]int{2, 4}[i] }

func nodeName(i int) string    { return [...]string{"n0", "n1"}[i] }
func machineID(i int) string   { return [...]string{"i-0", "i-1"}[i] }
func requestName(i int) string { return [...]string{"csr-0", "csr-1"}[i] }

func (w world) wantsRunning() bool { return w.wish != hivev1.PowerStateHibernating }
func (w world) answers() bool      { return w.api == apiBoot }

func (w world) all(s actuator.State) bool {
	return w.machines[0].state == s && w.machines[1].state == s
}

// reports: the node's machine runs, the API server answers, and the kubelet may talk to it.
func (w world) reports(i int) bool {
	c := w.nodes[i].certificate
	return w.machines[i].state == actuator.Running && w.answers() && c != expired && c != clientAsked
}

// observe is what the shell would observe, in its order.
func (w world) observe(d disturbance) Observed {
	o := Observed{Now: worldTime(), Installed: true, Want: w.wish, RequestedBy: "somebody", Record: w.sleep.record()}
	if d == cloudSilent {
		o.Trouble = &Trouble{Class: actuator.Unreachable, Message: "The cloud does not answer"}
		return o
	}
	for i, m := range w.machines {
		o.Machines = append(o.Machines, actuator.Machine{ID: machineID(i), State: m.state})
	}
	if !NeedsCluster(o) {
		return o
	}
	if !w.answers() || d == clusterSilent {
		o.API, o.APIMessage = Unreachable, "No answer"
		return o
	}
	o.API = Reachable
	for i, n := range w.nodes {
		if NeedsNodes(o) {
			o.Nodes = append(o.Nodes, Node{
				RecordedNode: hivev1.RecordedNode{Name: nodeName(i), UID: "uid-" + nodeName(i), Ready: n.ready},
				LastSeen:     n.seen.at().Time,
			})
		}
		if NeedsRequests(o) && (n.certificate == clientAsked || n.certificate == servingAsked) {
			o.Approvable = append(o.Approvable, requestName(i))
		}
	}
	return o
}

// pass is one pass of the shell: observe, decide, act, save. The disturbance says what goes wrong in it.
func (w world) pass(d disturbance) (world, Plan) {
	p := Decide(w.observe(d))
	next := w
	switch d {
	case actionRefused:
		p = refusedPlan(p)
	case actionPartlyRefused:
		next = next.act(firstOnly(p.Do))
		p = refusedPlan(p)
	case undisturbed, statusLost, cloudSilent, clusterSilent, wishFlipped, statusWiped, firstMeddled, secondMeddled, managerAway:
		next = next.act(p.Do)
	}
	if d != statusLost {
		next.sleep, next.told = recordOf(p.Record), told{p.Hibernating, p.Ready, p.Unreachable}
	}
	return next, p
}

// step is a pass and the time after it, at least a second. Time in which nothing happens is leapt over.
func (w world) step(d disturbance) (world, Plan) {
	saved, p := w.pass(d)
	after := p.After
	if after == 0 {
		after = driftInterval
	}
	after = max(after.Truncate(time.Second), time.Second)
	next := saved.tick(after)
	if next.timeless() == w.timeless() {
		next = saved.tick(max(after, stride))
	}
	return next, p
}

func (w world) act(do Action) world {
	switch do := do.(type) {
	case Stop:
		for i := range w.machines {
			if slices.Contains(do.IDs, machineID(i)) && w.machines[i].state == actuator.Running {
				w.machines[i] = toyMachine{actuator.Stopping, slowness(i)}
			}
		}
	case Start:
		for i := range w.machines {
			if slices.Contains(do.IDs, machineID(i)) && w.machines[i].state == actuator.Stopped {
				w.machines[i] = toyMachine{actuator.Starting, slowness(i)}
			}
		}
	case Approve:
		for i := range w.nodes {
			if slices.Contains(do.Requests, requestName(i)) {
				w.nodes[i].certificate = granted(w.nodes[i].certificate)
			}
		}
	case Nothing:
	}
	return w
}

func granted(c certificate) certificate {
	switch c {
	case clientAsked:
		return clientValid
	case servingAsked:
		return allValid
	case expired, clientValid, allValid:
		return c
	default:
		return c
	}
}

// tick lets the time between two passes go by.
func (w world) tick(d time.Duration) world {
	w.sleep.sleepStarted, w.sleep.resume, w.sleep.resumed = w.sleep.sleepStarted.plus(d), w.sleep.resume.plus(d), w.sleep.resumed.plus(d)
	for i := range w.machines {
		w.machines[i] = w.machines[i].tick()
	}
	w.api = min(w.api+1, apiBoot)
	if w.machines[0].state != actuator.Running {
		w.api = 0
	}
	for i := range w.nodes {
		w = w.tickNode(i, d)
	}
	return w
}

func (m toyMachine) tick() toyMachine {
	if m.left == 0 {
		return m
	}
	if m.left--; m.left > 0 {
		return m
	}
	if m.state == actuator.Stopping {
		return toyMachine{state: actuator.Stopped}
	}
	return toyMachine{state: actuator.Running}
}

func (w world) tickNode(i int, d time.Duration) world {
	n := &w.nodes[i]
	n.seen = n.seen.plus(d)
	if w.machines[i].state == actuator.Stopped {
		n.certificate = expired
	}
	if w.reports(i) {
		n.ready, n.seen = true, 0
	}
	if w.answers() && n.seen > unseenFor {
		n.ready = false
	}
	if w.machines[i].state != actuator.Running || !w.answers() {
		return w
	}
	switch n.certificate {
	case expired:
		if i == 0 || w.reports(0) {
			n.certificate = clientAsked
		}
	case clientValid:
		n.certificate = servingAsked
	case clientAsked, servingAsked, allValid:
	}
	return w
}

// timeless is the world without its ages: while it stays the same, nothing happens.
func (w world) timeless() world {
	for _, a := range []*age{&w.sleep.sleepStarted, &w.sleep.resume, &w.sleep.resumed} {
		if *a != never {
			*a = 0
		}
	}
	w.nodes[0].seen, w.nodes[1].seen = 0, 0
	return w
}

func (r toyRecord) record() *hivev1.HibernationRecord {
	if !r.exists {
		return nil
	}
	out := &hivev1.HibernationRecord{
		SleepStartedAt: *r.sleepStarted.at(), RequestedBy: "somebody", ResumeStartedAt: r.resume.at(), ResumedAt: r.resumed.at(),
	}
	for i, n := range r.nodes {
		if n != notRecorded {
			out.Nodes = append(out.Nodes, hivev1.RecordedNode{Name: nodeName(i), UID: "uid-" + nodeName(i), Ready: n == recordedReady})
		}
	}
	return out
}

// recordOf keeps what the API server would keep: whole seconds.
func recordOf(r *hivev1.HibernationRecord) toyRecord {
	out := noRecord()
	if r == nil {
		return out
	}
	out.exists, out.sleepStarted, out.resume, out.resumed = true, ageOf(&r.SleepStartedAt), ageOf(r.ResumeStartedAt), ageOf(r.ResumedAt)
	for i := range out.nodes {
		at := slices.IndexFunc(r.Nodes, func(n hivev1.RecordedNode) bool { return n.Name == nodeName(i) })
		switch {
		case at < 0:
		case r.Nodes[at].Ready:
			out.nodes[i] = recordedReady
		default:
			out.nodes[i] = recordedUnwell
		}
	}
	return out
}

func noRecord() toyRecord {
	return toyRecord{sleepStarted: never, resume: never, resumed: never, nodes: [2]recorded{notRecorded, notRecorded}}
}
