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

// modelState is a model of a cluster of two machines, its cloud and its saved status, as one comparable value.
// Machines need several passes to stop and start, and the API server responds only some time after the first machine
// runs. A node whose machine was off reports only after its request for a client certificate was approved. Then it
// requests a serving certificate. The second machine is slower, and its node requests certificates once the first one
// is back. Times are stored as ages, so the same situation is always the same value.
type modelState struct {
	desired  hivev1.PowerState
	machines [2]modelMachine
	// refuses is the action on the second machine that the cloud refuses.
	refuses refusal
	// spot is true if the second machine cannot be stopped and belongs to a MachineSet. isNew is true if it has
	// replaced another machine. A reused id stands for a third machine: no record contains both ids.
	spot, isNew bool
	// isOrdered is true if the second machine is a worker that is stopped before, and started after, the first
	// machine, the control plane.
	isOrdered bool
	// drains is true if the second machine, a worker, is drained before machines stop. pods and cordon belong to its
	// node.
	drains bool
	pods   podState
	cordon cordonState
	// apiPasses counts the passes since the start of the first machine, up to apiBootPasses.
	apiPasses int
	nodes     [2]modelNode
	// operators are the ClusterOperators; a plain Kubernetes cluster has none.
	operators operatorState
	// obstacle is true if the survey has a blocking finding, and the cluster requires a survey without such findings.
	obstacle bool
	// record and reported are the saved status.
	record   modelRecord
	reported reportedConditions
}

type modelMachine struct {
	state actuator.MachineState
	// left is the number of passes that a transition still takes.
	left int
}

type modelNode struct {
	certificate certificate
	ready       bool
	seen        age
}

// modelRecord is a HibernationRecord in a comparable form.
type modelRecord struct {
	exists                              bool
	hibernationStarted, resume, resumed age
	nodes                               [2]nodeRecord
	// spot is true for each id of the second machine that is in the record.
	spot [2]bool
	// drain is the age of the end of a drain; drainGoesOn and never are not ages.
	drain age
	left  string
	// readyInPart is the time since the resume counted as complete without the second machine.
	readyInPart age
	// broken is true if the operator was broken before the hibernation.
	broken bool
}

type reportedConditions struct{ hibernating, ready, unreachable, degraded, stalled decision.Condition }

type (
	refusal       string
	certificate   string
	nodeRecord    string
	operatorState string
	podState      string
	cordonState   string
	age           time.Duration
)

const (
	nothing refusal = ""
	starts  refusal = "starts"
	stops   refusal = "stops"

	expired      certificate = "expired"
	clientAsked  certificate = "client certificate asked for"
	clientValid  certificate = "client certificate valid"
	servingAsked certificate = "serving certificate asked for"
	allValid     certificate = "all certificates valid"

	noOperators     operatorState = ""
	operatorsSilent operatorState = "silent: their conditions are old"
	operatorsBusy   operatorState = "progressing"
	operatorsReady  operatorState = "ready"
	operatorsBroken operatorState = "degraded permanently"

	noPods      podState = ""
	podsRun     podState = "run"
	podsLeave   podState = "are being deleted"
	podsAreKept podState = "are kept by a budget"
	// podsAreRefused is the state of Pods in a cluster whose credentials do not allow evictions.
	podsAreRefused podState = "may not be evicted"

	notCordoned      cordonState = ""
	cordonedForDrain cordonState = "cordoned for the drain"
	cordonedByPerson cordonState = "cordoned by a person"

	// drainGoesOn marks a drain in progress; it is not an age.
	drainGoesOn age = -1<<63 + 1
	modelBudget     = 5 * time.Minute

	nodeNotRecorded      nodeRecord = "not recorded"
	nodeRecordedNotReady nodeRecord = "recorded, not ready"
	nodeRecordedReady    nodeRecord = "recorded, ready"

	// gone is the state of a terminated machine with a Machine that still exists.
	gone actuator.MachineState = "gone"

	never age = -1 << 63
	// forever is greater than every age that a decision depends on.
	forever = age(12 * time.Minute)

	apiBootPasses = 4
	// nodeGracePeriod is the time for which a cluster considers a silent node ready.
	nodeGracePeriod = age(40 * time.Second)
	// idleTime is the advance of the clock while nothing happens.
	idleTime = 3 * time.Minute
)

// modelTime is the only instant of the model. The API server drops its fraction of a second.
func modelTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 300_000_000, time.UTC) }

func (a age) plus(d time.Duration) age {
	if a == never || a == drainGoesOn {
		return a
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

// transitionPasses is the number of passes in which a machine stops or starts.
func transitionPasses(i int) int { return [...]int{2, 4}[i] }

func machineRole(i int) actuator.MachineRole {
	return [...]actuator.MachineRole{actuator.ControlPlaneRole, actuator.WorkerRole}[i]
}

func nodeName(i int) string    { return [...]string{"n0", "n1"}[i] }
func machineID(i int) string   { return [...]string{"i-0", "i-1", "i-2"}[i] }
func requestName(i int) string { return [...]string{"csr-0", "csr-1"}[i] }

func (s modelState) wantsRunning() bool { return s.desired != hivev1.PowerStateHibernating }
func (s modelState) apiAnswers() bool   { return s.apiPasses == apiBootPasses }

func (s modelState) allMachinesAre(state actuator.MachineState) bool {
	return s.machines[0].state == state && (s.machines[1].state == state || state == actuator.Stopped && s.machines[1].state == gone)
}

// idOf returns the cloud's id of a machine.
func (s modelState) idOf(i int) string {
	if i == 1 && s.isNew {
		return machineID(2)
	}
	return machineID(i)
}

// mayBeTerminated reports whether the second machine is in the saved record of a hibernation that is still wanted.
func (s modelState) mayBeTerminated() bool {
	return s.spot && !s.wantsRunning() && s.record.exists && s.record.resume == never && s.record.spot[map[bool]int{true: 1}[s.isNew]]
}

// hasForgottenSpotMachine reports whether only a user can replace the second machine, because the record that
// contained it is lost.
func (s modelState) hasForgottenSpotMachine() bool {
	return s.machines[1].state == gone && !s.record.spot[map[bool]int{true: 1}[s.isNew]]
}

// nodeReports reports whether the machine runs, the API server responds, and the kubelet has a valid client
// certificate.
func (s modelState) nodeReports(i int) bool {
	c := s.nodes[i].certificate
	return s.machines[i].state == actuator.Running && s.apiAnswers() && c != expired && c != clientAsked
}

// observeState makes the controller's observation, in the same order as the controller.
func (s modelState) observeState(d disturbance) Observed {
	o := Observed{Now: modelTime(), Installed: true, DesiredPowerState: s.desired, RequestedBy: "somebody", Record: s.record.record(), Options: StopOptions{WorkersFirst: s.isOrdered}}
	o.IsSurveyed, o.Options.RequiresPossible = true, true
	if s.obstacle {
		o.Obstacles = "ClusterUpgrading: an upgrade is under way"
	}
	if s.drains {
		o.Options.DrainBudget = modelBudget
	}
	if d == cloudUnreachable {
		o.ObservationError = &ObservationError{Class: actuator.Unreachable, Message: "The cloud does not answer"}
		return o
	}
	for i, m := range s.machines {
		if d == cloudLags {
			m.state = m.stateBefore()
		}
		if m.state != gone {
			o.Machines = append(o.Machines, actuator.Machine{ID: s.idOf(i), State: m.state, Spot: i == 1 && s.spot, Role: machineRole(i)})
		}
	}
	o.Refusal = s.lastRefusal()
	if !NeedsCluster(o) {
		return o
	}
	if !s.apiAnswers() || d == clusterUnreachableOnce {
		o.API, o.APIMessage = Unreachable, "No answer"
		return o
	}
	o.API = Reachable
	if o.HasReadMachines = NeedsMachines(o); o.HasReadMachines && s.spot {
		o.Replaceable = []ReplaceableMachine{{ID: s.idOf(1), Name: "worker", UID: "uid-worker"}}
	}
	for i, n := range s.nodes {
		if NeedsNodes(o) {
			o.Nodes = append(o.Nodes, ObservedNode{
				RecordedNode: hivev1.RecordedNode{Name: nodeName(i), UID: "uid-" + nodeName(i), Ready: n.ready},
				LastSeen:     n.seen.at().Time,
			})
			if s.drains {
				o.Nodes[i].ControlPlane = i == 0
				o.Nodes[i].Cordon = NodeCordon{IsSet: i == 1 && s.cordon != notCordoned, IsOurs: i == 1 && s.cordon == cordonedForDrain}
			}
		}
		if NeedsCertificateRequests(o) && (n.certificate == clientAsked || n.certificate == servingAsked) {
			o.Approvable = append(o.Approvable, requestName(i))
		}
	}
	if NeedsPods(o) {
		o.Pods = s.pods.observe()
	}
	o.WereOperatorsMissing = s.reported.degraded.Reason == hivev1.ClusterOperatorsNotReadyReason
	if s.operators != noOperators && NeedsOperators(o) {
		o.Operators = []ObservedOperator{s.operators.observe(o.Now)}
	}
	if d == actionRefused && len(o.Approvable) > 0 {
		o.ApprovalError = "The cluster refused csr-0"
	}
	return o
}

// stateBefore is the state that a cloud with lagging reads returns.
func (m modelMachine) stateBefore() actuator.MachineState {
	switch m.state {
	case actuator.Stopping:
		return actuator.Running
	case actuator.Starting:
		return actuator.Stopped
	case actuator.Running, actuator.Stopped:
	}
	return m.state
}

// lastRefusal is the refusal of the last pass's order.
func (s modelState) lastRefusal() *OrderRefusal {
	second := s.machines[1].state
	isHibernating := !s.wantsRunning() && s.record.exists && s.record.resume == never
	switch {
	case s.spot && isHibernating && second == actuator.Running && !s.mayBeTerminated():
		return &OrderRefusal{ObservationError{actuator.Other, "A spot machine cannot be stopped"}, s.refusedStop()}
	case s.mayBeTerminated():
		if s.refuses == stops && second == actuator.Running && s.machines[0].state == actuator.Stopped {
			return &OrderRefusal{ObservationError{actuator.Other, "The cloud refused to terminate it"}, []string{s.idOf(1)}}
		}
		return nil
	case s.refuses == starts && s.wantsRunning() && second == actuator.Stopped && s.record.resume != never:
		return &OrderRefusal{ObservationError{actuator.NoCapacity, "The cloud has no room for it"}, []string{s.idOf(1)}}
	case s.refuses == stops && isHibernating && second == actuator.Running:
		return &OrderRefusal{ObservationError{actuator.Other, "The cloud refused to stop i-1"}, s.refusedStop()}
	default:
		return nil
	}
}

// refusedStop are the machines of a refused order to stop the second machine.
func (s modelState) refusedStop() []string {
	if s.isOrdered {
		return []string{s.idOf(1)}
	}
	return []string{s.idOf(0), s.idOf(1)}
}

// reconcileOnce is one pass of the controller: observe, decide, act, save. The disturbance occurs in this pass.
func (s modelState) reconcileOnce(d disturbance) (modelState, Plan) {
	p := Decide(s.observeState(d))
	next := s
	switch d {
	case actionRefused:
	case actionPartlyRefused:
		next = next.applyAction(firstTargetOnly(p.Do))
	case undisturbed, statusLost, cloudUnreachable, cloudLags, clusterUnreachableOnce, desiredFlipped, statusWiped, firstMeddled, secondMeddled, managerAway, spotReplaced,
		startsRefused, stopsRefused, refusalEnds, obstacleFound:
		next = next.applyAction(p.Do)
	}
	if d != statusLost {
		next.record, next.reported = recordOf(p.Record), reportedConditions{p.Hibernating, p.Ready, p.Unreachable, p.Degraded, p.Stalled}
	}
	return next, p
}

// stepAndTick is a pass and the time after it, at least a second. Time in which nothing happens is skipped.
func (s modelState) stepAndTick(d disturbance) (modelState, Plan) {
	saved, p := s.reconcileOnce(d)
	after := p.RequeueAfter
	for _, sooner := range []time.Duration{p.CloudInterval, p.ProbeInterval} {
		if sooner > 0 {
			after = min(after, sooner)
		}
	}
	if after == 0 {
		after = driftInterval
	}
	after = max(after.Truncate(time.Second), time.Second)
	next := saved.tick(after)
	if next.withoutAges() == s.withoutAges() {
		next = saved.tick(max(after, idleTime))
	}
	return next, p
}

func (s modelState) applyAction(do Action) modelState {
	switch do := do.(type) {
	case StopMachines:
		if (s.refuses == stops || s.spot) && slices.Contains(do.IDs, s.idOf(1)) {
			return s // All machines of a cluster are stopped, or none.
		}
		for i := range s.machines {
			if slices.Contains(do.IDs, s.idOf(i)) && s.machines[i].state == actuator.Running {
				s.machines[i] = modelMachine{actuator.Stopping, transitionPasses(i)}
			}
		}
	case TerminateMachines:
		if s.refuses != stops && slices.Contains(do.IDs, s.idOf(1)) {
			s.machines[1] = modelMachine{state: gone}
		}
	case ReplaceMachines:
		s.machines[1], s.nodes[1] = modelMachine{actuator.Starting, transitionPasses(1)}, modelNode{certificate: expired, seen: forever}
		s.isNew = !s.isNew
	case StartMachines:
		for i := range s.machines {
			isRefused := s.refuses == starts && i == 1
			if slices.Contains(do.IDs, s.idOf(i)) && s.machines[i].state == actuator.Stopped && !isRefused {
				s.machines[i] = modelMachine{actuator.Starting, transitionPasses(i)}
			}
		}
	case ApproveRequests:
		for i := range s.nodes {
			if slices.Contains(do.Requests, requestName(i)) {
				s.nodes[i].certificate = grantCertificate(s.nodes[i].certificate)
			}
		}
	case DrainWorkers:
		if len(do.Cordon) > 0 && s.cordon == notCordoned {
			s.cordon = cordonedForDrain
		}
		if len(do.Evict) > 0 && s.pods == podsRun {
			s.pods = podsLeave
		}
	case UncordonNodes:
		if s.cordon == cordonedForDrain {
			s.cordon = notCordoned
		}
	case HoldGroups, ReleaseGroups: // The clusters of this model have no groups; see groupWorld.
	case NoAction:
	}
	return s
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

// tick advances the time between two passes.
func (s modelState) tick(d time.Duration) modelState {
	s.record.hibernationStarted, s.record.resume, s.record.resumed = s.record.hibernationStarted.plus(d), s.record.resume.plus(d), s.record.resumed.plus(d)
	s.record.drain, s.record.readyInPart = s.record.drain.plus(d), s.record.readyInPart.plus(d)
	for i := range s.machines {
		s.machines[i] = s.machines[i].tick()
	}
	switch isUp := s.drains && s.nodeReports(1); {
	case isUp && s.pods == podsLeave:
		s.pods = noPods
	case isUp && s.pods == noPods && s.cordon == notCordoned && s.wantsRunning():
		s.pods = podsRun
	}
	s.apiPasses = min(s.apiPasses+1, apiBootPasses)
	if s.machines[0].state != actuator.Running {
		s.apiPasses = 0
	}
	for i := range s.nodes {
		s = s.tickNode(i, d)
	}
	s.operators = s.operators.tick(s.machines[0].state == actuator.Running, s.nodeReports(0))
	return s
}

// observe returns the second node's pods.
func (p podState) observe() WorkerPods {
	seen := WorkerPods{IsRead: true}
	if p != noPods {
		seen.Pods = []ObservedPod{{Namespace: "default", Name: "pod", UID: "uid-pod", Node: nodeName(1), IsLeaving: p == podsLeave}}
	}
	switch p {
	case podsAreKept:
		seen.Kept = []string{"default/pod"}
	case podsAreRefused:
		seen.Pods[0].IsRefused = true
	case noPods, podsRun, podsLeave:
	}
	return seen
}

// tick advances the operators. They are silent at first because their nodes were off. Then they report, and finally
// they are ready.
func (o operatorState) tick(isOn, canRun bool) operatorState {
	switch {
	case o == noOperators, o == operatorsBroken:
		return o
	case !isOn:
		return operatorsSilent
	case !canRun:
		return o
	case o == operatorsSilent:
		return operatorsBusy
	default:
		return operatorsReady
	}
}

// observe returns the observed operator. A silent operator still looks ready.
func (o operatorState) observe(now time.Time) ObservedOperator {
	seen := ObservedOperator{Name: "etcd", LastSeen: now}
	switch o {
	case operatorsSilent:
		seen.LastSeen = now.Add(-time.Hour)
	case operatorsBusy:
		seen.Problem = "progressing"
	case operatorsBroken:
		seen.Problem, seen.IsBroken = "degraded", true
	case noOperators, operatorsReady:
	}
	return seen
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

func (s modelState) tickNode(i int, d time.Duration) modelState {
	n := &s.nodes[i]
	n.seen = n.seen.plus(d)
	if s.machines[i].state == actuator.Stopped && !s.wantsRunning() {
		n.certificate = expired // In a cluster that should run, a machine that was switched off is back before its certificate expires.
	}
	if s.nodeReports(i) {
		n.ready, n.seen = true, 0
	}
	if s.apiAnswers() && n.seen > nodeGracePeriod {
		n.ready = false
	}
	if s.machines[i].state != actuator.Running || !s.apiAnswers() {
		return s
	}
	switch n.certificate {
	case expired:
		if i == 0 || s.nodeReports(0) {
			n.certificate = clientAsked
		}
	case clientValid:
		n.certificate = servingAsked
	case clientAsked, servingAsked, allValid:
	}
	return s
}

// withoutAges returns the state without its ages. If the result does not change, nothing happens.
func (s modelState) withoutAges() modelState {
	for _, a := range []*age{&s.record.hibernationStarted, &s.record.resume, &s.record.resumed, &s.record.drain, &s.record.readyInPart} {
		if *a != never && *a != drainGoesOn {
			*a = 0
		}
	}
	s.nodes[0].seen, s.nodes[1].seen = 0, 0
	return s
}

func (r modelRecord) record() *hivev1.HibernationRecord {
	if !r.exists {
		return nil
	}
	out := &hivev1.HibernationRecord{
		SleepStartedAt: *r.hibernationStarted.at(), RequestedBy: "somebody", ResumeStartedAt: r.resume.at(), ResumedAt: r.resumed.at(),
	}
	if r.drain == drainGoesOn {
		out.Drain = &hivev1.DrainRecord{}
	} else if r.drain != never {
		out.Drain = &hivev1.DrainRecord{EndedAt: r.drain.at(), Left: r.left}
	}
	out.ReadyInPartAt = r.readyInPart.at()
	if r.broken {
		out.BrokenOperators = []string{"etcd"}
	}
	for i, isRecorded := range r.spot {
		if isRecorded {
			out.SpotMachines = append(out.SpotMachines, machineID(1+i))
		}
	}
	for i, n := range r.nodes {
		if n != nodeNotRecorded {
			out.Nodes = append(out.Nodes, hivev1.RecordedNode{Name: nodeName(i), UID: "uid-" + nodeName(i), Ready: n == nodeRecordedReady})
		}
	}
	return out
}

// recordOf rounds times to whole seconds, as the API server does.
func recordOf(r *hivev1.HibernationRecord) modelRecord {
	out := noRecord()
	if r == nil {
		return out
	}
	out.exists, out.hibernationStarted, out.resume, out.resumed = true, ageOf(&r.SleepStartedAt), ageOf(r.ResumeStartedAt), ageOf(r.ResumedAt)
	out.readyInPart, out.broken = ageOf(r.ReadyInPartAt), len(r.BrokenOperators) > 0
	if r.Drain != nil {
		out.drain, out.left = drainGoesOn, r.Drain.Left
		if r.Drain.EndedAt != nil {
			out.drain = ageOf(r.Drain.EndedAt)
		}
	}
	for i := range out.spot {
		out.spot[i] = slices.Contains(r.SpotMachines, machineID(1+i))
	}
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
	return modelRecord{hibernationStarted: never, resume: never, resumed: never, drain: never, readyInPart: never, nodes: [2]nodeRecord{nodeNotRecorded, nodeNotRecorded}}
}

// format formats a state for a failure message.
func (s modelState) format() string {
	return fmt.Sprintf("want %s, ordered %t; machines %v, spot %t, new %t, refused %q, API %d, nodes %v, operators %q, drains %t, pods %q, cordon %q; record %+v; reported %s/%s",
		s.desired, s.isOrdered, s.machines, s.spot, s.isNew, s.refuses, s.apiPasses, s.nodes, s.operators, s.drains, s.pods, s.cordon, s.record, s.reported.hibernating.Reason, s.reported.ready.Reason)
}
