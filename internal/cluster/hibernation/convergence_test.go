// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/test/env/model"
)

// maxStepsToRest is the maximum number of passes until nothing changes any more, after any disturbances. With operators
// that never become ready, the wait for them and the later polls add passes. With a drain, the drain budget adds
// passes.
const maxStepsToRest, maxStepsWithBrokenOperators, maxStepsWithDrain = 15, 21, 17

// exploreModel visits every state on the undisturbed paths from the start states, and checks each step.
func exploreModel(t *testing.T, starts ...modelState) *model.Explorer[modelState] {
	t.Helper()
	return model.Explore(t, model.Model[modelState]{
		Step: func(s modelState) model.Move[modelState] {
			next, plan := s.stepAndTick(undisturbed)
			return model.Move[modelState]{Name: plan.Rule, To: next}
		},
		Check:       checkStep,
		IsChange:    func(from, to modelState) bool { return from.withoutAges() != to.withoutAges() },
		FormatState: modelState.format,
	}, starts...)
}

// disturbModel applies each disturbance once in each state, whether it is changing or at rest. It returns the states
// that had not been visited before.
func disturbModel(t *testing.T, e *model.Explorer[modelState], states []modelState, by ...disturbance) []modelState {
	t.Helper()
	var worthwhile []modelState
	for _, s := range states {
		if e.StepsToRest(t, s) > 0 || e.IsAtRest(s) {
			worthwhile = append(worthwhile, s)
		}
	}
	return e.Disturb(t, worthwhile, func(s modelState) []model.Move[modelState] {
		var moves []model.Move[modelState]
		for _, d := range by {
			moves = append(moves, model.Move[modelState]{Name: string(d), To: s.applyDisturbance(d)})
		}
		return moves
	})
}

// From any state, and after any two disturbances at any two moments, a cluster comes to rest in the desired power
// state.
func TestEveryStateConverges(t *testing.T) {
	e := exploreModel(t, startStates()...)
	undisturbedStates := e.States()
	t.Logf("%d states on the ways from %d starts", len(undisturbedStates), len(startStates()))
	once := disturbModel(t, e, undisturbedStates, disturbances()...)
	t.Logf("%d states more after one of %d disturbances at any step", len(once), len(disturbances()))
	again := []disturbance{statusLost, actionRefused, desiredFlipped, statusWiped, firstMeddled, spotReplaced, refusalEnds}
	disturbModel(t, e, once, again...)
	t.Logf("%d states in all after another of %d", len(e.States()), len(again))

	type clusterKind struct{ isBroken, drains bool }
	for kind, most := range map[clusterKind]int{{}: maxStepsToRest, {isBroken: true}: maxStepsWithBrokenOperators, {drains: true}: maxStepsWithDrain} {
		states := slices.DeleteFunc(e.States(), func(s modelState) bool { return clusterKind{s.operators == operatorsBroken, s.drains} != kind })
		longest := slices.MaxFunc(states, func(a, b modelState) int { return cmp.Compare(e.StepsToRest(t, a), e.StepsToRest(t, b)) })
		if steps := e.StepsToRest(t, longest); steps != most {
			t.Errorf("expected at most %d steps to rest, found %d:\n%s", most, steps, e.FormatPath(e.PathToRest(t, longest)))
		}
	}
}

// checkStep returns the errors of a step.
func checkStep(from modelState, step model.Move[modelState]) []string {
	to := step.To
	stops, starts := false, false
	for i, m := range from.machines {
		// A machine stops or starts only because of the plan's action.
		stops = stops || m.state == actuator.Running && to.machines[i].state == actuator.Stopping
		starts = starts || m.state == actuator.Stopped && to.machines[i].state == actuator.Starting
	}
	var wrong []string
	isTerminated := from.machines[1].state != gone && to.machines[1].state == gone
	if isTerminated && (!from.mayBeTerminated() || from.machines[0].state != actuator.Stopped) {
		wrong = append(wrong, "terminates a machine that is not in the saved record of a wanted hibernation, or before the other machine is stopped")
	}
	if to.isNew != from.isNew && (!from.wantsRunning() || from.machines[1].state != gone) {
		wrong = append(wrong, "replaces a machine that exists, or in a cluster that should hibernate")
	}
	if stops && (from.wantsRunning() || !from.record.exists || from.record.resume != never) {
		wrong = append(wrong, "stops without a saved record of a wanted hibernation")
	}
	hasNotResumed, begins := from.record.exists && from.record.resumed == never, to.record.exists && to.record.resume == never
	if from.obstacle && begins && !hasNotResumed && !from.allMachinesAre(actuator.Stopped) {
		wrong = append(wrong, "begins a hibernation that is refused")
	}
	if starts && !from.awaitsSpotRecord() && (!from.wantsRunning() || from.record.resume == never && !from.looksLikeGrowth()) {
		wrong = append(wrong, "starts without a saved record of a wanted resume, and while no other machine runs")
	}
	wrong = append(append(wrong, checkOrder(from, to)...), checkDrain(from, to)...)
	if step.Name == "drain workers" && from.pods == podsAreRefused && from.cordon != notCordoned && from.nodeReports(1) {
		wrong = append(wrong, "continues a drain that the cluster refuses")
	}
	if to.hasLostItsRecord() && !from.hasLostItsRecord() {
		wrong = append(wrong, "leaves nodes without their certificates")
	}
	if to.reported.ready.Status == metav1.ConditionTrue && !from.apiAnswers() {
		wrong = append(wrong, "is reported to be ready and does not answer")
	}
	isCalledWhole := to.reported.ready.Status == metav1.ConditionTrue && to.reported.degraded.Status != metav1.ConditionTrue
	if isCalledWhole && from.areOperatorsAwaited() {
		wrong = append(wrong, "is reported as whole before its operators have reported in the resume, or the wait for them has ended")
	}
	isReady := func(s modelState) bool { return s.reported.ready.Status == metav1.ConditionTrue }
	if from.record.readyInPart != never && isReady(from) && from.wantsRunning() && from.nodeReports(0) && !isReady(to) {
		wrong = append(wrong, "is no longer reported to be ready because a machine comes late")
	}
	if from == to && from.wantsRunning() && !from.isRunning() && !from.isRunningInPart() && !from.hasForgottenSpotMachine() {
		wrong = append(wrong, "rests although it does not run")
	}
	if from == to && !from.wantsRunning() && !from.isHibernating() && !from.isKeptFromHibernating() && !from.isRefused() {
		wrong = append(wrong, "rests although it does not hibernate")
	}
	return wrong
}

// checkOrder returns the errors of a step of a cluster whose worker stops first and starts last.
func checkOrder(from, to modelState) []string {
	if !from.isOrdered {
		return nil
	}
	var wrong []string
	worker := from.machines[1].state
	isWorkerOff := worker == actuator.Stopped || worker == gone || from.mayBeTerminated()
	if stops := from.machines[0].state == actuator.Running && to.machines[0].state == actuator.Stopping; stops && !isWorkerOff && from.record.hibernationStarted < age(workersStopWindow) {
		wrong = append(wrong, "stops the control plane before the worker is off, and before the wait has ended")
	}
	isResuming := from.record.resume != never && from.record.resumed == never && from.record.resume < age(controlPlaneStartWindow)
	isUp := from.machines[0].state == actuator.Running && from.apiAnswers()
	if starts := worker == actuator.Stopped && to.machines[1].state == actuator.Starting; starts && from.wantsRunning() && isResuming && !isUp {
		wrong = append(wrong, "starts the worker before the control plane answers, and before the wait has ended")
	}
	return wrong
}

// checkDrain returns the errors of a step of a cluster whose worker is drained before machines stop.
func checkDrain(from, to modelState) []string {
	var wrong []string
	isDraining := !from.wantsRunning() && from.record.exists && from.record.resume == never && from.record.drain == drainGoesOn
	for i, m := range from.machines {
		if isDraining && m.state == actuator.Running && to.machines[i].state == actuator.Stopping {
			wrong = append(wrong, "stops a machine before the drain is over")
		}
	}
	if isChanged := from.cordon == notCordoned && to.cordon != notCordoned || from.pods == podsRun && to.pods == podsLeave; isChanged && (!isDraining || from.record.hibernationStarted >= age(modelBudget)) {
		wrong = append(wrong, "drains a worker that is not to be drained, or beyond the budget")
	}
	if isDraining && from.record.hibernationStarted >= age(modelBudget) && to.record.drain == drainGoesOn && !from.allMachinesAre(actuator.Stopped) {
		wrong = append(wrong, "does not end a drain whose budget is used up")
	}
	if from.cordon == cordonedByPerson && to.cordon != cordonedByPerson {
		wrong = append(wrong, "uncordons a node that a user has cordoned")
	}
	return wrong
}

func (s modelState) isRunning() bool {
	if s.cordon == cordonedForDrain && s.record.exists {
		return false // Without a record, no controller reads cordoned nodes.
	}
	return s.allMachinesAre(actuator.Running) && (s.areNodesBack() || s.hasLostItsRecord()) &&
		s.reported.hibernating.Status == metav1.ConditionFalse && s.reported.hibernating.Reason == hivev1.RunningHibernationReason &&
		s.reported.ready.Status == metav1.ConditionTrue && s.reported.unreachable.Status == metav1.ConditionFalse
}

func (s modelState) isHibernating() bool {
	return s.allMachinesAre(actuator.Stopped) && s.record.exists && s.record.resume == never &&
		s.reported.hibernating.Status == metav1.ConditionTrue && s.reported.hibernating.Reason == hivev1.HibernatingHibernationReason &&
		s.reported.ready.Status == metav1.ConditionFalse && s.reported.unreachable.Status == metav1.ConditionTrue
}

// areOperatorsAwaited reports whether an unfinished resume must wait for operators.
func (s modelState) areOperatorsAwaited() bool {
	isOpen := s.wantsRunning() && s.record.exists && s.record.resume != never && s.record.resumed == never && s.record.resume < age(partialResumeAfter)
	return isOpen && s.operators != noOperators && s.operators != operatorsReady
}

func (s modelState) areNodesBack() bool {
	return !slices.ContainsFunc(s.nodes[:], func(n modelNode) bool { return n.certificate != allValid || !n.ready || n.seen > 0 })
}

// isRunningInPart reports whether the second machine has no capacity, and the cluster is reported as running without
// it.
func (s modelState) isRunningInPart() bool {
	return s.refuses == starts && s.machines[0].state == actuator.Running && s.machines[1].state == actuator.Stopped &&
		(s.nodeReports(0) || s.hasLostItsRecord()) && s.reported.ready.Status == metav1.ConditionTrue &&
		s.reported.degraded.Status == metav1.ConditionTrue && s.reported.unreachable.Status == metav1.ConditionFalse
}

// isKeptFromHibernating reports whether the cloud refuses to stop or to terminate the second machine, and the status
// reports this. A spot machine that is not in the record must not keep its cluster partly down.
func (s modelState) isKeptFromHibernating() bool {
	return s.refuses == stops && (!s.spot || s.mayBeTerminated()) && s.machines[1].state == actuator.Running && s.reported.ready.Reason == hivev1.FailedToStopReason &&
		s.reported.stalled.Status == metav1.ConditionTrue
}

// isRefused reports whether an obstacle causes the refusal of the hibernation, and the status reports this.
func (s modelState) isRefused() bool {
	return s.obstacle && s.reported.hibernating.Status == metav1.ConditionFalse && s.reported.hibernating.Reason == hivev1.RefusedHibernationReason
}

// awaitsSpotRecord reports whether a spot machine runs that is missing in the saved record of a wanted hibernation.
func (s modelState) awaitsSpotRecord() bool {
	return s.spot && !s.wantsRunning() && s.record.exists && s.record.resume == never && s.machines[1].state == actuator.Running && !s.mayBeTerminated()
}

// looksLikeGrowth reports whether a machine runs. Outside a resume, another machine that is off or starting then counts
// as new.
func (s modelState) looksLikeGrowth() bool {
	return s.machines[0].state == actuator.Running || s.machines[1].state == actuator.Running
}

// hasLostItsRecord reports whether the machines run, their nodes lack certificates, and no record of a recent
// hibernation exists. Only a lost status causes this state. The cluster cannot leave it, because the lost record
// contained the nodes that may get a certificate.
func (s modelState) hasLostItsRecord() bool {
	if !s.wantsRunning() || !s.looksLikeGrowth() {
		return false
	}
	lacking := s.nodes[0].certificate != allValid || s.nodes[1].certificate != allValid && s.machines[1].state != gone
	recent := s.record.exists && (s.record.resumed == never || s.record.resumed < age(aftercareWindow))
	return lacking && !recent
}

// startStates are the states in which Torpor may find a cluster.
func startStates() []modelState {
	both, none := [2]nodeRecord{nodeRecordedReady, nodeRecordedReady}, [2]nodeRecord{nodeNotRecorded, nodeNotRecorded}
	minute, noSpot := age(time.Minute), [2]bool{}
	records := []modelRecord{
		noRecord(),
		{true, minute / 60, never, never, both, noSpot, never, "", never, false},
		{true, minute / 60, never, never, none, noSpot, never, "", never, false},
		{true, 5 * minute, minute / 20, never, both, noSpot, never, "", never, false},
		{true, forever, 2 * minute, minute, both, noSpot, never, "", never, false},
		{true, forever, forever, forever, both, noSpot, never, "", never, false},
	}
	machines := []modelMachine{{actuator.Running, 0}, {actuator.Stopping, 1}, {actuator.Stopped, 0}, {actuator.Starting, 1}}
	var list []modelState
	for _, wish := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
		for _, first := range machines {
			for _, second := range machines {
				for _, record := range records {
					for _, api := range []int{0, apiBootPasses} {
						for _, c := range []certificate{expired, allValid} {
							list = append(list, consistentState(modelState{desired: wish, machines: [2]modelMachine{first, second}, apiPasses: api, record: record}, c))
						}
					}
				}
			}
		}
	}
	return slices.Concat(list, withSpotMachines(list), withOperators(list), withOrder(list), withDrain(list))
}

// withDrain returns clusters that are about to hibernate or to resume, with a worker that is drained first. The
// worker's pods terminate, are kept by a PodDisruptionBudget or may not be evicted. The worker's node is schedulable,
// or was cordoned by a user or for the drain.
func withDrain(list []modelState) []modelState {
	var drained []modelState
	for _, s := range list {
		isUniform := s.machines[0] == s.machines[1] && s.machines[0].left == 0 && s.nodes[0].certificate == s.nodes[1].certificate
		runs := !s.record.exists && s.apiAnswers() && s.nodeReports(1) && !s.wantsRunning()
		sleeps := s.record.exists && s.record.nodes[0] == nodeRecordedReady && s.record.resume == never && s.machines[0].state == actuator.Stopped && s.wantsRunning()
		if !isUniform || !runs && !sleeps {
			continue
		}
		s.drains, s.isOrdered, s.pods = true, true, podsRun
		if s.record.exists && s.record.resume == never {
			s.record.drain = drainGoesOn
		}
		kept, refused, cordoned, left := s, s, s, s
		kept.pods, refused.pods, cordoned.cordon, left.cordon = podsAreKept, podsAreRefused, cordonedByPerson, cordonedForDrain
		drained = append(drained, s, kept, refused, cordoned)
		if s.record.exists {
			drained = append(drained, left)
		}
	}
	return drained
}

// withOrder returns clusters with a worker that stops first, and a machine that can be stopped or not. Machines in
// transition are left out, because they behave as without an order.
func withOrder(list []modelState) []modelState {
	var ordered []modelState
	for _, s := range list {
		isSettled := s.machines[0].left == 0 && s.machines[1].left == 0 && s.nodes[0].certificate == s.nodes[1].certificate
		isUniform := s.machines[0].state == s.machines[1].state || s.machines[0].state == actuator.Running
		if isSettled && isUniform && (!s.record.exists || s.record.nodes[0] != nodeNotRecorded && s.record.resumed == never) {
			s.isOrdered = true
			ordered = append(ordered, s)
		}
	}
	return slices.Concat(ordered, withSpotMachines(ordered))
}

// withOperators returns OpenShift clusters that hibernate, resume or have never hibernated. Their operators become
// ready as soon as they can, or never.
func withOperators(list []modelState) []modelState {
	var openShift []modelState
	for _, s := range list {
		isUniform := s.machines[0] == s.machines[1] && s.machines[0].left == 0 && s.nodes[0].certificate == s.nodes[1].certificate
		if !isUniform || s.record.exists && s.record.nodes[0] == nodeNotRecorded {
			continue
		}
		if s.operators = operatorsReady; s.machines[0].state == actuator.Stopped {
			s.operators = operatorsBroken
			openShift = append(openShift, s)
			s.operators = operatorsSilent
		}
		openShift = append(openShift, s)
	}
	return openShift
}

// withSpotMachines returns the given states with a spot machine as the second machine, in the record or not. A stopped
// machine becomes a terminated one, if its record is not one of a complete resume.
func withSpotMachines(list []modelState) []modelState {
	var spot []modelState
	for _, s := range list {
		s.spot = true
		recorded := s
		recorded.record.spot[0] = true
		switch s.machines[1].state {
		case actuator.Running, actuator.Starting:
			spot = append(spot, s)
			if s.record.exists {
				spot = append(spot, recorded)
			}
		case actuator.Stopped:
			recorded.machines[1].state = gone
			if s.record.exists && s.record.resumed == never {
				spot = append(spot, recorded)
			}
		case actuator.Stopping: // A spot machine cannot be stopped.
		}
	}
	return spot
}

// consistentState changes an impossible state into a possible one.
func consistentState(s modelState, c certificate) modelState {
	if s.machines[0].state != actuator.Running {
		s.apiPasses = 0
	}
	for i := range s.nodes {
		s.nodes[i] = modelNode{certificate: c, ready: true, seen: age(time.Minute)}
		if s.machines[i].state == actuator.Stopped && (!s.wantsRunning() || s.record.exists && s.record.resumed == never) {
			s.nodes[i].certificate = expired
		}
		if s.nodeReports(i) {
			s.nodes[i].seen = 0
		}
	}
	return s
}

// healthyState is a running cluster that never hibernated.
func healthyState() modelState {
	running := modelMachine{state: actuator.Running}
	return consistentState(modelState{desired: hivev1.PowerStateRunning, machines: [2]modelMachine{running, running}, apiPasses: apiBootPasses, record: noRecord()}, allValid)
}

// healthySpotState is a healthy state with a machine that cannot be stopped.
func healthySpotState() modelState {
	s := healthyState()
	s.spot = true
	return s
}

// exploreHibernateAndResume visits the states in which healthy clusters hibernate and resume.
func exploreHibernateAndResume(t *testing.T) *model.Explorer[modelState] {
	t.Helper()
	e := exploreModel(t)
	for _, healthy := range []modelState{healthyState(), healthySpotState()} {
		e.Visit(t, healthy, healthy.flipDesired())
		way := e.PathToRest(t, healthy.flipDesired())
		e.Visit(t, way[len(way)-1].flipDesired())
	}
	return e
}

// A cluster that hibernated and resumed, with any three disturbances, is not reported as ready before its nodes are
// back. Lost records and machines switched off by another party are excluded: a node that has reported in the resume
// counts as back until the cluster itself notices its absence.
func TestReadyMeansThatTheNodesAreBack(t *testing.T) {
	mishaps := []disturbance{statusLost, actionRefused, actionPartlyRefused, cloudUnreachable, cloudLags, clusterUnreachableOnce, desiredFlipped, managerAway}
	e := exploreHibernateAndResume(t)
	states := e.States()
	for range 3 {
		states = disturbModel(t, e, states, mishaps...)
	}
	t.Logf("%d states after three mishaps", len(e.States()))
	failures := 0
	for _, s := range e.States() {
		next := e.NextMove(s).To.reported
		early := next.ready.Status == metav1.ConditionTrue && next.degraded.Status != metav1.ConditionTrue && (!s.nodeReports(0) || !s.nodeReports(1))
		if early && failures < 5 {
			failures++
			t.Errorf("ready without its nodes:\n%s", e.PathTo(s))
		}
	}
}

// Every status write is an API request and an event for every watcher.
func TestTransitionsTakeFewStatusWrites(t *testing.T) {
	// The start of a replaced spot machine takes one more write.
	const maxToHibernate, maxToResume, maxToReplace = 4, 6, 7
	// The wait for operators takes one more write. Its end takes another if they never become ready.
	const maxToResumeOperators = 8
	// With workers first, each of the two groups has a separate report.
	const maxToHibernateInOrder, maxToResumeInOrder = 5, 7
	// A drain is reported at its start, at its end, and when pods are late. The last step uncordons the nodes.
	const maxToHibernateDrained, maxToResumeDrained = 8, 8
	e := exploreModel(t, startStates()...)
	disturbModel(t, e, e.States(), desiredFlipped)
	type transition struct{ toRunning, isSpot, hasOperators, isOrdered, drains bool }
	most := map[transition]int{}
	for _, s := range e.States() {
		if !e.IsAtRest(s) {
			continue
		}
		flipped, writes := s.flipDesired(), 0
		for _, on := range e.PathToRest(t, flipped) {
			if saved, _ := on.reconcileOnce(undisturbed); saved.reported != on.reported || saved.record != on.record {
				writes++
			}
		}
		kind := transition{flipped.wantsRunning(), s.spot, s.operators != noOperators, s.isOrdered, s.drains}
		most[kind] = max(most[kind], writes)
	}
	for kind, limit := range map[transition]int{
		{}: maxToHibernate, {isSpot: true}: maxToHibernate, {hasOperators: true}: maxToHibernate, {isOrdered: true}: maxToHibernateInOrder, {isOrdered: true, drains: true}: maxToHibernateDrained,
		{toRunning: true}: maxToResume, {toRunning: true, isSpot: true}: maxToReplace, {toRunning: true, hasOperators: true}: maxToResumeOperators,
		{toRunning: true, isOrdered: true}: maxToResumeInOrder, {toRunning: true, isOrdered: true, drains: true}: maxToResumeDrained,
	} {
		if writes := most[kind]; writes == 0 || writes > limit {
			t.Errorf("%+v: expected at most %d writes, found %d", kind, limit, writes)
		}
	}
}
