// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The toy world: a cluster of two machines, its cloud and what is saved of it, as one comparable value.
// Machines need passes to stop and start, the API server answers only a while after the first machine runs, and a node
// whose machine was off reports only after its request for a client certificate was approved, then asks for a serving one.
// The second machine is slower, and its node asks when the first one is back.
// Times are ages, so that the same situation is the same value whenever it occurs.
type modelState struct {
	desired  hivev1.PowerState
	machines [2]modelMachine
	// apiPasses counts the passes since the first machine runs, up to apiBoot.
	apiPasses int
	nodes     [2]modelNode
	// record and told are the saved status.
	record   modelRecord
	reported reportedConditions
}

type modelMachine struct {
	state actuator.MachineState
	// left is how many passes a transition still takes.
	left int
}

type modelNode struct {
	certificate certificate
	ready       bool
	seen        age
}

// modelRecord is a HibernationRecord, comparable.
type modelRecord struct {
	exists                              bool
	hibernationStarted, resume, resumed age
	nodes                               [2]nodeRecord
}

type reportedConditions struct{ hibernating, ready, unreachable decision.Condition }

type (
	certificate string
	nodeRecord  string
	age         time.Duration
)

const (
	expired      certificate = "expired"
	clientAsked  certificate = "client certificate asked for"
	clientValid  certificate = "client certificate valid"
	servingAsked certificate = "serving certificate asked for"
	allValid     certificate = "all certificates valid"

	nodeNotRecorded      nodeRecord = "not recorded"
	nodeRecordedNotReady nodeRecord = "recorded, not ready"
	nodeRecordedReady    nodeRecord = "recorded, ready"

	never age = -1 << 63
	// forever is older than every age that a decision looks at.
	forever = age(12 * time.Minute)

	apiBootPasses = 4
	// nodeGracePeriod is how long a cluster believes a node that does not report.
	nodeGracePeriod = age(40 * time.Second)
	// idleTime is how far time leaps while nothing happens.
	idleTime = 3 * time.Minute
)

// modelTime is the toy world's only instant; its fraction is what the API server forgets.
func modelTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 300_000_000, time.UTC) }

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
	return new(metav1.NewTime(modelTime().Add(-time.Duration(a))))
}

func ageOf(t *metav1.Time) age {
	if t == nil {
		return never
	}
	return min(age(modelTime().Sub(t.Truncate(time.Second))), forever)
}

// transitionPasses is how many passes a machine takes to stop or start.
func transitionPasses(i int) int { return [...]int{2, 4}[i] }

func nodeName(i int) string    { return [...]string{"n0", "n1"}[i] }
func machineID(i int) string   { return [...]string{"i-0", "i-1"}[i] }
func requestName(i int) string { return [...]string{"csr-0", "csr-1"}[i] }

func (w modelState) wantsRunning() bool { return w.desired != hivev1.PowerStateHibernating }
func (w modelState) apiAnswers() bool   { return w.apiPasses == apiBootPasses }

func (w modelState) allMachinesAre(s actuator.MachineState) bool {
	return w.machines[0].state == s && w.machines[1].state == s
}

// nodeReports: the node's machine runs, the API server answers, and the kubelet may talk to it.
func (w modelState) nodeReports(i int) bool {
	c := w.nodes[i].certificate
	return w.machines[i].state == actuator.Running && w.apiAnswers() && c != expired && c != clientAsked
}

// observeState is what the shell would observe, in its order.
func (w modelState) observeState(d disturbance) Observed {
	o := Observed{Now: modelTime(), Installed: true, DesiredPowerState: w.desired, RequestedBy: "somebody", Record: w.record.record()}
	if d == cloudSilent {
		o.ObservationError = &ObservationError{Class: actuator.Unreachable, Message: "The cloud does not answer"}
		return o
	}
	for i, m := range w.machines {
		o.Machines = append(o.Machines, actuator.Machine{ID: machineID(i), State: m.state})
	}
	if !NeedsCluster(o) {
		return o
	}
	if !w.apiAnswers() || d == clusterSilent {
		o.API, o.APIMessage = Unreachable, "No answer"
		return o
	}
	o.API = Reachable
	for i, n := range w.nodes {
		if NeedsNodes(o) {
			o.Nodes = append(o.Nodes, ObservedNode{
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

// reconcileOnce is one pass of the shell: observe, decide, act, save. The disturbance says what goes wrong in it.
func (w modelState) reconcileOnce(d disturbance) (modelState, Plan) {
	p := Decide(w.observeState(d))
	next := w
	switch d {
	case actionRefused:
		p = refusedPlan(p)
	case actionPartlyRefused:
		next = next.applyAction(firstTargetOnly(p.Do))
		p = refusedPlan(p)
	case undisturbed, statusLost, cloudSilent, clusterSilent, desiredFlipped, statusWiped, firstMeddled, secondMeddled, managerAway:
		next = next.applyAction(p.Do)
	}
	if d != statusLost {
		next.record, next.reported = recordOf(p.Record), reportedConditions{p.Hibernating, p.Ready, p.Unreachable}
	}
	return next, p
}

// stepAndTick is a pass and the time after it, at least a second. Time in which nothing happens is leapt over.
func (w modelState) stepAndTick(d disturbance) (modelState, Plan) {
	saved, p := w.reconcileOnce(d)
	after := p.RequeueAfter
	if after == 0 {
		after = driftInterval
	}
	after = max(after.Truncate(time.Second), time.Second)
	next := saved.tick(after)
	if next.withoutAges() == w.withoutAges() {
		next = saved.tick(max(after, idleTime))
	}
	return next, p
}

func (w modelState) applyAction(do Action) modelState {
	switch do := do.(type) {
	case StopMachines:
		for i := range w.machines {
			if slices.Contains(do.IDs, machineID(i)) && w.machines[i].state == actuator.Running {
				w.machines[i] = modelMachine{actuator.Stopping, transitionPasses(i)}
			}
		}
	case StartMachines:
		for i := range w.machines {
			if slices.Contains(do.IDs, machineID(i)) && w.machines[i].state == actuator.Stopped {
				w.machines[i] = modelMachine{actuator.Starting, transitionPasses(i)}
			}
		}
	case ApproveRequests:
		for i := range w.nodes {
			if slices.Contains(do.Requests, requestName(i)) {
				w.nodes[i].certificate = grantCertificate(w.nodes[i].certificate)
			}
		}
	case NoAction:
	}
	return w
}

func grantCertificate(c certificate) certificate {
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
func (w modelState) tick(d time.Duration) modelState {
	w.record.hibernationStarted, w.record.resume, w.record.resumed = w.record.hibernationStarted.plus(d), w.record.resume.plus(d), w.record.resumed.plus(d)
	for i := range w.machines {
		w.machines[i] = w.machines[i].tick()
	}
	w.apiPasses = min(w.apiPasses+1, apiBootPasses)
	if w.machines[0].state != actuator.Running {
		w.apiPasses = 0
	}
	for i := range w.nodes {
		w = w.tickNode(i, d)
	}
	return w
}

func (m modelMachine) tick() modelMachine {
	if m.left == 0 {
		return m
	}
	if m.left--; m.left > 0 {
		return m
	}
	if m.state == actuator.Stopping {
		return modelMachine{state: actuator.Stopped}
	}
	return modelMachine{state: actuator.Running}
}

func (w modelState) tickNode(i int, d time.Duration) modelState {
	n := &w.nodes[i]
	n.seen = n.seen.plus(d)
	if w.machines[i].state == actuator.Stopped {
		n.certificate = expired
	}
	if w.nodeReports(i) {
		n.ready, n.seen = true, 0
	}
	if w.apiAnswers() && n.seen > nodeGracePeriod {
		n.ready = false
	}
	if w.machines[i].state != actuator.Running || !w.apiAnswers() {
		return w
	}
	switch n.certificate {
	case expired:
		if i == 0 || w.nodeReports(0) {
			n.certificate = clientAsked
		}
	case clientValid:
		n.certificate = servingAsked
	case clientAsked, servingAsked, allValid:
	}
	return w
}

// withoutAges is the world without its ages: while it stays the same, nothing happens.
func (w modelState) withoutAges() modelState {
	for _, a := range []*age{&w.record.hibernationStarted, &w.record.resume, &w.record.resumed} {
		if *a != never {
			*a = 0
		}
	}
	w.nodes[0].seen, w.nodes[1].seen = 0, 0
	return w
}

func (r modelRecord) record() *hivev1.HibernationRecord {
	if !r.exists {
		return nil
	}
	out := &hivev1.HibernationRecord{
		SleepStartedAt: *r.hibernationStarted.at(), RequestedBy: "somebody", ResumeStartedAt: r.resume.at(), ResumedAt: r.resumed.at(),
	}
	for i, n := range r.nodes {
		if n != nodeNotRecorded {
			out.Nodes = append(out.Nodes, hivev1.RecordedNode{Name: nodeName(i), UID: "uid-" + nodeName(i), Ready: n == nodeRecordedReady})
		}
	}
	return out
}

// recordOf keeps what the API server would keep: whole seconds.
func recordOf(r *hivev1.HibernationRecord) modelRecord {
	out := noRecord()
	if r == nil {
		return out
	}
	out.exists, out.hibernationStarted, out.resume, out.resumed = true, ageOf(&r.SleepStartedAt), ageOf(r.ResumeStartedAt), ageOf(r.ResumedAt)
	for i := range out.nodes {
		at := slices.IndexFunc(r.Nodes, func(n hivev1.RecordedNode) bool { return n.Name == nodeName(i) })
		switch {
		case at < 0:
		case r.Nodes[at].Ready:
			out.nodes[i] = nodeRecordedReady
		default:
			out.nodes[i] = nodeRecordedNotReady
		}
	}
	return out
}

func noRecord() modelRecord {
	return modelRecord{hibernationStarted: never, resume: never, resumed: never, nodes: [2]nodeRecord{nodeNotRecorded, nodeNotRecorded}}
}
