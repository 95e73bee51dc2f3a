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
func TestEveryWorldComesToRest(t *testing.T) {
	a := newAtlas()
	worlds := a.explore(t, a.all(starts())...)
	t.Logf("%d worlds on the ways from %d starts", len(worlds), len(starts()))
	once := a.disturb(t, worlds, disturbances())
	t.Logf("%d worlds after one of %d disturbances at any step", len(once), len(disturbances()))
	again := []disturbance{statusLost, actionRefused, wishFlipped, statusWiped, firstMeddled}
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
	_, stops := a.steps[id].do.(Stop)
	_, starts := a.steps[id].do.(Start)
	switch {
	case stops && (w.wantsRunning() || !w.sleep.exists || w.sleep.resume != never):
		return "stops without a saved record of a wanted sleep"
	case starts && (!w.wantsRunning() || w.sleep.resume == never):
		return "starts without a saved record of a wanted wake-up"
	case to.forgotten() && !w.forgotten():
		return "leaves nodes without their certificates"
	case to.told.ready.Status == metav1.ConditionTrue && !w.answers():
		return "is told to be ready and does not answer"
	case !a.rests(id):
		return ""
	case w.wantsRunning() && !w.runs():
		return "rests although it does not run"
	case !w.wantsRunning() && !w.hibernates():
		return "rests although it does not hibernate"
	}
	return ""
}

func (w world) runs() bool {
	return w.all(actuator.Running) && (w.nodesBack() || w.forgotten()) &&
		w.told.hibernating.Status == metav1.ConditionFalse && w.told.hibernating.Reason == hivev1.RunningHibernationReason &&
		w.told.ready.Status == metav1.ConditionTrue && w.told.unreachable.Status == metav1.ConditionFalse
}

func (w world) hibernates() bool {
	return w.all(actuator.Stopped) && w.sleep.exists && w.sleep.resume == never &&
		w.told.hibernating.Status == metav1.ConditionTrue && w.told.hibernating.Reason == hivev1.HibernatingHibernationReason &&
		w.told.ready.Status == metav1.ConditionFalse && w.told.unreachable.Status == metav1.ConditionTrue
}

func (w world) nodesBack() bool {
	return !slices.ContainsFunc(w.nodes[:], func(n toyNode) bool { return n.certificate != allValid || !n.ready || n.seen > 0 })
}

// seemsToGrow: nothing is off, and something runs; what starts may be new.
func (w world) seemsToGrow() bool {
	runs := false
	for _, m := range w.machines {
		if m.state == actuator.Stopped || m.state == actuator.Stopping {
			return false
		}
		runs = runs || m.state == actuator.Running
	}
	return runs
}

// forgotten: the machines run, their nodes lack certificates, and no record says that they slept not long ago.
// Nothing but a lost status can lead there, and nothing leads out: who may get a certificate stood in the record.
func (w world) forgotten() bool {
	if !w.wantsRunning() || !w.seemsToGrow() {
		return false
	}
	lacking := slices.ContainsFunc(w.nodes[:], func(n toyNode) bool { return n.certificate != allValid })
	recent := w.sleep.exists && (w.sleep.resumed == never || w.sleep.resumed < age(aftercareWindow))
	return lacking && !recent
}

// starts are the worlds in which Torpor may find a cluster.
func starts() []world {
	both, none := [2]recorded{recordedReady, recordedReady}, [2]recorded{notRecorded, notRecorded}
	minute := age(time.Minute)
	records := []toyRecord{
		noRecord(),
		{true, minute / 60, never, never, both},
		{true, minute / 60, never, never, none},
		{true, 5 * minute, minute / 20, never, both},
		{true, forever, 2 * minute, minute, both},
		{true, forever, forever, forever, both},
	}
	machines := []toyMachine{{actuator.Running, 0}, {actuator.Stopping, 1}, {actuator.Stopped, 0}, {actuator.Starting, 1}}
	var list []world
	for _, wish := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
		for _, first := range machines {
			for _, second := range machines {
				for _, record := range records {
					for _, api := range []int{0, apiBoot} {
						for _, c := range []certificate{expired, allValid} {
							list = append(list, start(world{wish: wish, machines: [2]toyMachine{first, second}, api: api, sleep: record}, c))
						}
					}
				}
			}
		}
	}
	return list
}

// start makes a world one that can be.
func start(w world, c certificate) world {
	if w.machines[0].state != actuator.Running {
		w.api = 0
	}
	for i := range w.nodes {
		w.nodes[i] = toyNode{certificate: c, ready: true, seen: age(time.Minute)}
		if w.machines[i].state == actuator.Stopped {
			w.nodes[i].certificate = expired
		}
		if w.reports(i) {
			w.nodes[i].seen = 0
		}
	}
	return w
}

// healthy is a cluster that runs and never slept.
func healthy() world {
	running := toyMachine{state: actuator.Running}
	return start(world{wish: hivev1.PowerStateRunning, machines: [2]toyMachine{running, running}, api: apiBoot, sleep: noRecord()}, allValid)
}

// thereAndBack are the worlds on the way of a healthy cluster to sleep and back.
func (a *atlas) thereAndBack(t *testing.T) []int {
	t.Helper()
	toSleep := a.path(t, a.place(healthy().flip()))
	asleep := a.worlds[toSleep[len(toSleep)-1]]
	return a.explore(t, a.all([]world{healthy(), healthy().flip(), asleep.flip()})...)
}

// A cluster that Torpor has put to sleep and woken, through any three mishaps, is not called ready before its nodes are back.
// Left out are lost records, and machines that others switch off: a node that had been seen since the wake-up counts as
// back until the cluster itself misses it.
func TestReadyMeansThatTheNodesAreBack(t *testing.T) {
	mishaps := []disturbance{statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent, wishFlipped, managerAway}
	a := newAtlas()
	worlds := a.thereAndBack(t)
	for range 3 {
		worlds = a.disturb(t, worlds, mishaps)
	}
	t.Logf("%d worlds after three mishaps", len(worlds))
	failures := 0
	for _, id := range worlds {
		w, next := a.worlds[id], a.worlds[a.next(id)]
		early := next.told.ready.Status == metav1.ConditionTrue && (!w.reports(0) || !w.reports(1))
		if early && failures < 5 {
			failures++
			t.Errorf("ready without its nodes:\n%s", a.story(a.path(t, id)))
		}
	}
}

// Every write of a status is an API call and an event for everybody who watches: a transition takes few.
func TestTransitionsAreWrittenDownFewTimes(t *testing.T) {
	const mostForSleep, mostForResume = 4, 6
	a := newAtlas()
	most := map[bool]int{}
	for _, id := range a.disturb(t, a.explore(t, a.all(starts())...), []disturbance{wishFlipped}) {
		if !a.rests(id) {
			continue
		}
		w := a.worlds[id].flip()
		from := a.place(w)
		writes := 0
		for _, on := range a.path(t, from) {
			if saved, _ := a.worlds[on].pass(undisturbed); saved.told != a.worlds[on].told || saved.sleep != a.worlds[on].sleep {
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
