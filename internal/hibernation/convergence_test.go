// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// maxSteps is how many passes it takes at most until nothing changes any more, whatever happened before.
const maxSteps = 11

// Whatever a world looks like, and whatever goes wrong twice at any two moments, it comes to rest where somebody wants it.
func TestEveryStateConverges(t *testing.T) {
	a := newAtlas()
	worlds := a.explore(t, a.all(startStates())...)
	t.Logf("%d worlds on the ways from %d starts", len(worlds), len(startStates()))
	once := a.disturb(t, worlds, disturbances())
	t.Logf("%d worlds after one of %d disturbances at any step", len(once), len(disturbances()))
	again := []disturbance{statusLost, actionRefused, desiredFlipped, statusWiped, firstMeddled}
	twice := a.disturb(t, once, again)
	t.Logf("%d worlds after another of %d; %d worlds in all, %d steps to rest at most", len(twice), len(again), len(a.worlds), slices.Max(a.toRest))

	if steps := slices.Max(a.toRest); steps != maxSteps {
		t.Errorf("expected at most %d steps to rest, found %d:\n%s", maxSteps, steps, a.story(a.path(t, slices.Index(a.toRest, steps))))
	}
	failures := 0
	for id := range a.worlds {
		if a.steps[id].to == notYet {
			continue
		}
		if wrong := a.wrong(id); wrong != "" && failures < 5 {
			failures++
			t.Errorf("%s:\n%s", wrong, a.story(a.path(t, id)))
		}
	}
}

// wrong says what is wrong with a world's step, if anything.
func (a *atlas) wrong(id int) string {
	w, to := a.worlds[id], a.worlds[a.steps[id].to]
	_, stops := a.steps[id].do.(StopMachines)
	_, starts := a.steps[id].do.(StartMachines)
	switch {
	case stops && (w.wantsRunning() || !w.record.exists || w.record.resume != never):
		return "stops without a saved record of a wanted sleep"
	case starts && (!w.wantsRunning() || w.record.resume == never):
		return "starts without a saved record of a wanted wake-up"
	case to.hasLostItsRecord() && !w.hasLostItsRecord():
		return "leaves nodes without their certificates"
	case to.reported.ready.Status == metav1.ConditionTrue && !w.apiAnswers():
		return "is told to be ready and does not answer"
	case !a.rests(id):
		return ""
	case w.wantsRunning() && !w.isRunning():
		return "rests although it does not run"
	case !w.wantsRunning() && !w.isHibernating():
		return "rests although it does not hibernate"
	}
	return ""
}

func (w modelState) isRunning() bool {
	return w.allMachinesAre(actuator.Running) && (w.areNodesBack() || w.hasLostItsRecord()) &&
		w.reported.hibernating.Status == metav1.ConditionFalse && w.reported.hibernating.Reason == hivev1.RunningHibernationReason &&
		w.reported.ready.Status == metav1.ConditionTrue && w.reported.unreachable.Status == metav1.ConditionFalse
}

func (w modelState) isHibernating() bool {
	return w.allMachinesAre(actuator.Stopped) && w.record.exists && w.record.resume == never &&
		w.reported.hibernating.Status == metav1.ConditionTrue && w.reported.hibernating.Reason == hivev1.HibernatingHibernationReason &&
		w.reported.ready.Status == metav1.ConditionFalse && w.reported.unreachable.Status == metav1.ConditionTrue
}

func (w modelState) areNodesBack() bool {
	return !slices.ContainsFunc(w.nodes[:], func(n modelNode) bool { return n.certificate != allValid || !n.ready || n.seen > 0 })
}

// looksLikeGrowth: nothing is off, and something runs; what starts may be new.
func (w modelState) looksLikeGrowth() bool {
	runs := false
	for _, m := range w.machines {
		if m.state == actuator.Stopped || m.state == actuator.Stopping {
			return false
		}
		runs = runs || m.state == actuator.Running
	}
	return runs
}

// hasLostItsRecord: the machines run, their nodes lack certificates, and no record says that they slept not long ago.
// Nothing but a lost status can lead there, and nothing leads out: who may get a certificate stood in the record.
func (w modelState) hasLostItsRecord() bool {
	if !w.wantsRunning() || !w.looksLikeGrowth() {
		return false
	}
	lacking := slices.ContainsFunc(w.nodes[:], func(n modelNode) bool { return n.certificate != allValid })
	recent := w.record.exists && (w.record.resumed == never || w.record.resumed < age(aftercareWindow))
	return lacking && !recent
}

// startStates are the worlds in which Torpor may find a cluster.
func startStates() []modelState {
	both, none := [2]nodeRecord{nodeRecordedReady, nodeRecordedReady}, [2]nodeRecord{nodeNotRecorded, nodeNotRecorded}
	minute := age(time.Minute)
	records := []modelRecord{
		noRecord(),
		{true, minute / 60, never, never, both},
		{true, minute / 60, never, never, none},
		{true, 5 * minute, minute / 20, never, both},
		{true, forever, 2 * minute, minute, both},
		{true, forever, forever, forever, both},
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
	return list
}

// consistentState makes a world one that can be.
func consistentState(w modelState, c certificate) modelState {
	if w.machines[0].state != actuator.Running {
		w.apiPasses = 0
	}
	for i := range w.nodes {
		w.nodes[i] = modelNode{certificate: c, ready: true, seen: age(time.Minute)}
		if w.machines[i].state == actuator.Stopped {
			w.nodes[i].certificate = expired
		}
		if w.nodeReports(i) {
			w.nodes[i].seen = 0
		}
	}
	return w
}

// healthyState is a cluster that runs and never slept.
func healthyState() modelState {
	running := modelMachine{state: actuator.Running}
	return consistentState(modelState{desired: hivev1.PowerStateRunning, machines: [2]modelMachine{running, running}, apiPasses: apiBootPasses, record: noRecord()}, allValid)
}

// thereAndBack are the worlds on the way of a healthy cluster to sleep and back.
func (a *atlas) thereAndBack(t *testing.T) []int {
	t.Helper()
	toSleep := a.path(t, a.place(healthyState().flipDesired()))
	asleep := a.worlds[toSleep[len(toSleep)-1]]
	return a.explore(t, a.all([]modelState{healthyState(), healthyState().flipDesired(), asleep.flipDesired()})...)
}

// A cluster that Torpor has put to sleep and woken, through any three mishaps, is not called ready before its nodes are back.
// Left out are lost records, and machines that others switch off: a node that had been seen since the wake-up counts as
// back until the cluster itself misses it.
func TestReadyMeansThatTheNodesAreBack(t *testing.T) {
	mishaps := []disturbance{statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent, desiredFlipped, managerAway}
	a := newAtlas()
	worlds := a.thereAndBack(t)
	for range 3 {
		worlds = a.disturb(t, worlds, mishaps)
	}
	t.Logf("%d worlds after three mishaps", len(worlds))
	failures := 0
	for _, id := range worlds {
		w, next := a.worlds[id], a.worlds[a.next(id)]
		early := next.reported.ready.Status == metav1.ConditionTrue && (!w.nodeReports(0) || !w.nodeReports(1))
		if early && failures < 5 {
			failures++
			t.Errorf("ready without its nodes:\n%s", a.story(a.path(t, id)))
		}
	}
}

// Every write of a status is an API call and an event for everybody who watches: a transition takes few.
func TestTransitionsTakeFewStatusWrites(t *testing.T) {
	const mostForSleep, mostForResume = 4, 6
	a := newAtlas()
	most := map[bool]int{}
	for _, id := range a.disturb(t, a.explore(t, a.all(startStates())...), []disturbance{desiredFlipped}) {
		if !a.rests(id) {
			continue
		}
		w := a.worlds[id].flipDesired()
		from := a.place(w)
		writes := 0
		for _, on := range a.path(t, from) {
			if saved, _ := a.worlds[on].reconcileOnce(undisturbed); saved.reported != a.worlds[on].reported || saved.record != a.worlds[on].record {
				writes++
			}
		}
		most[w.wantsRunning()] = max(most[w.wantsRunning()], writes)
	}
	t.Logf("a resume is written down %d times, a sleep %d times", most[true], most[false])
	if most[true] == 0 || most[true] > mostForResume || most[false] == 0 || most[false] > mostForSleep {
		t.Errorf("expected at most %d writes of a resume and %d of a sleep, found %d and %d", mostForResume, mostForSleep, most[true], most[false])
	}
}
