// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

const (
	pausedCluster = "Cluster.cluster.x-k8s.io/demo"
	pausedCheck   = "MachineHealthCheck.machine.openshift.io/workers"
)

// managedCluster is a reachable cluster that should hibernate. A Cluster and a MachineHealthCheck replace its
// machines.
func managedCluster(mode string, edit func(*Observed)) Observed {
	o := observedCluster(hivev1.PowerStateHibernating, nil, actuator.Running)
	o.API, o.Options.MachineGroups = Reachable, mode
	o.Groups = []actuator.Group{NewClusterAPIGroup("demo", NotPaused), NewHealthCheckGroup("workers", NotPaused)}
	o.HasReadClusterAPI, o.HasReadHealthChecks = true, true
	if edit != nil {
		edit(&o)
	}
	return o
}

func setPauses(o *Observed, cluster, check PauseState) {
	o.Groups = []actuator.Group{NewClusterAPIGroup("demo", cluster), NewHealthCheckGroup("workers", check)}
}

func TestMachineControllersThatCannotBePausedAreRefused(t *testing.T) {
	const suspend, scale = hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero
	for name, row := range map[string]struct {
		mode string
		edit func(*Observed)
		want string
	}{
		"Cluster without the annotation is refused with advice": {"", nil, pausedCluster + ", whose controllers replace machines"},
		"Cluster with the mode scale-to-zero is refused":        {scale, nil, "set the annotation torpor.dev/machine-groups to suspend"},
		"Cluster with the mode suspend is not refused":          {suspend, nil, ""},
		"Cluster that a user has paused is not refused":         {"", func(o *Observed) { setPauses(o, PausedByOther, NotPaused) }, ""},
		"Cluster that Torpor still pauses is not refused":       {"", func(o *Observed) { setPauses(o, PausedByUs, NotPaused) }, ""},
		"MachineHealthCheck alone is not refused":               {"", func(o *Observed) { o.Groups = o.Groups[1:] }, ""},
		"recorded Cluster without the annotation is not refused": {"", func(o *Observed) {
			o.Record = openRecord()
			o.Record.MachineGroups = []hivev1.MachineGroupRecord{{Name: pausedCluster, Mode: suspend}}
		}, ""},
		"unreadable controllers are refused with the mode suspend":      {suspend, func(o *Observed) { o.GroupsError = "no right" }, "Cannot read the objects whose controllers replace machines and must be paused first: no right"},
		"unreadable controllers are not refused without the annotation": {"", func(o *Observed) { o.Groups, o.GroupsError = nil, "no right" }, ""},
		"unreadable controllers are not refused during a hibernation": {suspend, func(o *Observed) {
			o.GroupsError, o.Record = "no right", openRecord()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := managedCluster(row.mode, row.edit)
			found := UnsupportedReason(o)
			if (row.want == "") != (found == "") || !strings.Contains(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
			if p := Decide(o); (row.want != "") != (p.Rule == "requested hibernation not supported") {
				t.Errorf("expected the rule to agree with %q, found %q", row.want, p.Rule)
			}
		})
	}
}

// TestPausesAreRecordedBeforeTheyAreSet follows the steps of a hibernation until the first machine is stopped.
func TestPausesAreRecordedBeforeTheyAreSet(t *testing.T) {
	o := managedCluster(hivev1.MachineGroupsSuspend, nil)
	p := Decide(o)
	if _, isNothing := p.Do.(NoAction); p.Rule != "record nodes" || !isNothing || len(p.Record.MachineGroups) != 2 {
		t.Fatalf("expected a record of two groups and no action, found %T by %q and %+v", p.Do, p.Rule, p.Record)
	}
	o.Record = p.Record
	if !NeedsHealthChecks(o) {
		t.Error("expected the MachineHealthChecks to be read again")
	}
	p = Decide(o)
	if do, ok := p.Do.(HoldGroups); !ok || len(do.Changes) != 2 || !strings.Contains(p.Ready.Message, pausedCheck) {
		t.Fatalf("expected both to be paused, found %+v by %q and %q", p.Do, p.Rule, p.Ready.Message)
	}
	for name, row := range map[string]struct {
		cluster, check PauseState
		edit           func(*Observed)
		want           string
	}{
		"paused MachineHealthChecks are recorded with the time of the pause": {PausedByUs, PausedByUs, nil, "record paused groups"},
		"active MachineHealthCheck prevents the stop":                        {PausedByUs, NotPaused, nil, "suspend, pause or scale machine groups"},
		"active Cluster prevents the stop":                                   {NotPaused, PausedByUs, nil, "record paused groups"},
		"MachineHealthChecks that were not read prevent the stop":            {PausedByUs, PausedByUs, func(o *Observed) { o.Groups, o.HasReadHealthChecks = o.Groups[:1], false }, "suspend, pause or scale machine groups"},
		"cluster that does not respond prevents the stop until the time limit": {PausedByUs, PausedByUs, func(o *Observed) {
			o.API, o.Groups, o.HasReadHealthChecks = Unreachable, o.Groups[:1], false
		}, "suspend, pause or scale machine groups"},
		"cluster that does not respond within the time limit does not prevent the stop": {PausedByUs, PausedByUs, func(o *Observed) {
			o.API, o.Groups, o.HasReadHealthChecks, o.Now = Unreachable, o.Groups[:1], false, o.Now.Add(nodeRecordWindow)
		}, "stop machines"},
		"MachineHealthCheck with a recorded pause does not prevent the stop": {PausedByUs, NotPaused, func(o *Observed) {
			o.API, o.Groups, o.HasReadHealthChecks = NotProbed, o.Groups[:1], false
			o.Record = o.Record.DeepCopy()
			o.Record.MachineGroups[1].HeldAt = new(metav1.NewTime(o.Now))
		}, "stop machines"},
	} {
		t.Run(name, func(t *testing.T) {
			o := o
			setPauses(&o, row.cluster, row.check)
			if row.edit != nil {
				row.edit(&o)
			}
			p := Decide(o)
			if _, stops := p.Do.(StopMachines); p.Rule != row.want || stops != (row.want == "stop machines") {
				t.Errorf("expected %q, found %q with %+v", row.want, p.Rule, p.Do)
			}
			if isHeld := p.Record.MachineGroups[1].HeldAt != nil; row.check == PausedByUs && o.HasReadHealthChecks && !isHeld {
				t.Errorf("expected the time of the pause, found %+v", p.Record.MachineGroups)
			}
		})
	}
}

// TestPausesAreEndedOnceTheNodesAreBack covers the end of a resume.
func TestPausesAreEndedOnceTheNodesAreBack(t *testing.T) {
	for name, row := range map[string]struct {
		cluster, check PauseState
		edit           func(*Observed)
		released, left int
	}{
		"pauses by Torpor are released":                                   {PausedByUs, PausedByUs, nil, 2, 2},
		"Cluster that a user has paused is not released":                  {PausedByOther, PausedByUs, nil, 1, 1},
		"controllers that are not paused are not released":                {NotPaused, NotPaused, nil, 0, 0},
		"machine that does not run prevents the release":                  {PausedByUs, PausedByUs, func(o *Observed) { o.Machines[0].State = actuator.Starting }, 0, 2},
		"missing nodes prevent the release":                               {PausedByUs, PausedByUs, func(o *Observed) { o.Nodes[0].Ready = false }, 0, 2},
		"controllers that were not read keep their entries in the record": {PausedByUs, PausedByUs, func(o *Observed) { o.Groups, o.HasReadClusterAPI, o.HasReadHealthChecks = nil, false, false }, 0, 2},
		"deleted controllers lose their entries in the record":            {PausedByUs, PausedByUs, func(o *Observed) { o.Groups = nil }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := managedCluster("", func(o *Observed) {
				now := modelTime()
				o.Now, o.DesiredPowerState = now, hivev1.PowerStateRunning
				o.Nodes = []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: now}}
				o.Record = &hivev1.HibernationRecord{
					SleepStartedAt: metav1.NewTime(now.Add(-time.Hour)), ResumeStartedAt: new(metav1.NewTime(now.Add(-time.Minute))),
					Nodes:         []hivev1.RecordedNode{{Name: "n0", UID: "uid-n0", Ready: true}},
					MachineGroups: []hivev1.MachineGroupRecord{{Name: pausedCluster, Mode: hivev1.MachineGroupsSuspend}, {Name: pausedCheck, Mode: hivev1.MachineGroupsSuspend}},
				}
			})
			setPauses(&o, row.cluster, row.check)
			if row.edit != nil {
				row.edit(&o)
			}
			p := Decide(o)
			released := 0
			if do, ok := p.Do.(ReleaseGroups); ok {
				released = len(do.Changes)
			}
			if released != row.released || len(p.Record.MachineGroups) != row.left {
				t.Errorf("expected %d released groups and %d entries, found %+v by %q and %+v", row.released, row.left, p.Do, p.Rule, p.Record.MachineGroups)
			}
			if named := LeftGroups(o, p); (row.cluster == PausedByOther) != slices.Contains(named, pausedCluster) {
				t.Errorf("expected a pause of a user to be named, found %v", named)
			}
		})
	}
}

// pausedObservations vary the machines, the record, and the pauses of a Cluster and a MachineHealthCheck.
func pausedObservations() []Observed {
	back := []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: modelTime().Add(-time.Second)}}
	records := slices.DeleteFunc(hibernationRecords(), func(r *hivev1.HibernationRecord) bool {
		return r != nil && (r.Drain != nil || len(r.SpotMachines) > 0 || len(r.BrokenOperators) > 0)
	})
	held := new(metav1.NewTime(modelTime()))
	entries := [][]hivev1.MachineGroupRecord{
		nil,
		{{Name: pausedCluster, Mode: hivev1.MachineGroupsSuspend}, {Name: pausedCheck, Mode: hivev1.MachineGroupsSuspend}},
		{{Name: pausedCluster, Mode: hivev1.MachineGroupsSuspend}, {Name: pausedCheck, Mode: hivev1.MachineGroupsSuspend, HeldAt: held}},
	}
	pauses := [][2]PauseState{{NotPaused, NotPaused}, {PausedByUs, NotPaused}, {NotPaused, PausedByUs}, {PausedByUs, PausedByUs}, {PausedByOther, NotPaused}, {PausedByOther, PausedByOther}}
	var list []Observed
	for _, record := range records {
		for _, entry := range entries {
			for _, pause := range pauses {
				for _, states := range [][2]actuator.MachineState{{actuator.Running, actuator.Running}, {actuator.Running, actuator.Stopped}, {actuator.Stopping, actuator.Running}, {actuator.Stopped, actuator.Stopped}, {actuator.Running, actuator.Starting}} {
					for _, want := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
						for _, mode := range []string{"", hivev1.MachineGroupsSuspend} {
							for _, cluster := range []Observed{{APIMessage: "No answer"}, {API: Unreachable, APIMessage: "No answer"}, {API: Reachable, Nodes: back}} {
								o := cluster
								o.Installed, o.Now, o.DesiredPowerState, o.Options.MachineGroups = true, modelTime(), want, mode
								o.Machines = []actuator.Machine{{ID: "i-0", State: states[0]}, {ID: "i-1", State: states[1]}}
								setPauses(&o, pause[0], pause[1])
								o.HasReadClusterAPI, o.HasReadHealthChecks = true, o.API == Reachable
								if o.API != Reachable {
									o.Groups = o.Groups[:1]
								}
								if o.Record = record.DeepCopy(); record != nil && record.ResumedAt == nil {
									o.Record.MachineGroups = entry
								}
								list = append(list, o)
							}
						}
					}
				}
			}
		}
	}
	return list
}

// hasActiveController reports whether a Cluster is active, or a recorded MachineHealthCheck of a reachable cluster
// was not yet recorded as paused.
func (o Observed) hasActiveController() bool {
	isActive := func(g actuator.Group) bool {
		return strings.HasPrefix(g.Name, "Cluster.cluster.x-k8s.io/") && len(g.Suspended) < len(g.Processes)
	}
	isUnheld := func(r hivev1.MachineGroupRecord) bool {
		return IsHealthCheck(r.Name) && r.HeldAt == nil && o.API == Reachable
	}
	return slices.ContainsFunc(o.Groups, isActive) || slices.ContainsFunc(o.Record.MachineGroups, isUnheld)
}

// pauseWorld is a model of a cluster of two machines. Controllers on the hub and in the cluster replace each machine
// that does not run, at once.
type pauseWorld struct {
	states         [2]actuator.MachineState
	cluster, check PauseState
	replaced       int
	record         *hivev1.HibernationRecord
	desired        hivev1.PowerState
	now, seen      time.Time
}

func (w *pauseWorld) act() {
	w.now = w.now.Add(time.Second)
	for i, state := range w.states {
		switch state {
		case actuator.Stopping:
			w.states[i] = actuator.Stopped
		case actuator.Starting:
			w.states[i] = actuator.Running
		case actuator.Running, actuator.Stopped:
		}
	}
	isOn := slices.Contains(w.states[:], actuator.Running)
	isOff := w.states != [2]actuator.MachineState{actuator.Running, actuator.Running}
	if isOff && (w.cluster == NotPaused || isOn && w.check == NotPaused) {
		w.replaced++
	}
	if w.states[0] == actuator.Running {
		w.seen = w.now
	}
}

func (w *pauseWorld) observe() Observed {
	o := Observed{Installed: true, Now: w.now, DesiredPowerState: w.desired, Record: w.record.DeepCopy(), Options: StopOptions{MachineGroups: hivev1.MachineGroupsSuspend}}
	for i, state := range w.states {
		o.Machines = append(o.Machines, actuator.Machine{ID: fmt.Sprintf("i-%d", i), State: state})
	}
	o.Groups, o.HasReadClusterAPI = []actuator.Group{NewClusterAPIGroup("demo", w.cluster)}, true
	switch {
	case !NeedsCluster(o):
	case w.states[0] != actuator.Running:
		o.API, o.APIMessage = Unreachable, "No answer"
	default:
		wantsChecks := NeedsHealthChecks(o)
		if o.API = Reachable; NeedsNodes(o) {
			o.Nodes = []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: w.seen}}
		}
		if wantsChecks {
			o.Groups, o.HasReadHealthChecks = append(o.Groups, NewHealthCheckGroup("workers", w.check)), true
		}
	}
	return o
}

func (w *pauseWorld) apply(do Action, random *rand.Rand) {
	switch do := do.(type) {
	case StopMachines:
		w.order(do.IDs, actuator.Running, actuator.Stopping)
	case StartMachines:
		w.order(do.IDs, actuator.Stopped, actuator.Starting)
	case HoldGroups:
		w.change(do.Changes, random)
	case ReleaseGroups:
		w.change(do.Changes, random)
	case NoAction, TerminateMachines, ApproveRequests, ReplaceMachines, DrainWorkers, UncordonNodes:
	}
}

func (w *pauseWorld) order(ids []string, from, to actuator.MachineState) {
	for i := range w.states {
		if w.states[i] == from && slices.Contains(ids, fmt.Sprintf("i-%d", i)) {
			w.states[i] = to
		}
	}
}

// change applies or drops each change.
func (w *pauseWorld) change(changes []actuator.GroupChange, random *rand.Rand) {
	for _, c := range changes {
		state := NotPaused
		if len(c.Suspend) > 0 {
			state = PausedByUs
		}
		if random.IntN(4) == 0 {
			continue
		}
		if IsHealthCheck(c.Name) {
			w.check = state
		} else {
			w.cluster = state
		}
	}
}

// pass is one pass of a manager. The manager may crash before the action, or before the status is saved.
func (w *pauseWorld) pass(random *rand.Rand) Plan {
	p := Decide(w.observe())
	death := random.IntN(6)
	if death != 0 {
		w.apply(p.Do, random)
	}
	if death > 1 {
		w.record = p.Record
	}
	return p
}

// TestHistoriesOfPausedControllersReplaceNothing runs random histories in which users change their minds, changes are
// lost and managers crash between any two actions. No machine is replaced. At the end each controller is in its
// earlier state.
func TestHistoriesOfPausedControllersReplaceNothing(t *testing.T) {
	const histories, maxFlips, maxPasses = 10_000, 6, 300
	hibernations := 0
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 1))
		pauses := []PauseState{NotPaused, NotPaused, PausedByOther}
		w := &pauseWorld{now: modelTime(), seen: modelTime(), desired: hivev1.PowerStateRunning, states: [2]actuator.MachineState{actuator.Running, actuator.Running}}
		w.cluster, w.check = pauses[random.IntN(len(pauses))], pauses[random.IntN(len(pauses))]
		cluster, check := w.cluster, w.check
		for range 1 + random.IntN(maxFlips) {
			w.desired = []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning}[random.IntN(2)]
			for range random.IntN(40) {
				if p := w.pass(random); p.Hibernating.Reason == hivev1.HibernatingHibernationReason {
					hibernations++
				}
				w.act()
			}
		}
		w.desired = hivev1.PowerStateRunning
		var last Plan
		for range maxPasses {
			if last = w.pass(random); last.Rule == "running" && (w.record == nil || w.record.ResumedAt != nil) {
				break
			}
			w.act()
		}
		if last.Rule != "running" || w.cluster != cluster || w.check != check || w.replaced > 0 || w.record != nil && len(w.record.MachineGroups) > 0 {
			t.Fatalf("history %d: rule %q, %d machines replaced, %q and %q were %q and %q before, record %+v", seed, last.Rule, w.replaced, w.cluster, w.check, cluster, check, w.record)
		}
	}
	t.Logf("%d histories, and %d passes that found the cluster hibernating", histories, hibernations)
	if hibernations < histories {
		t.Errorf("expected at least %d passes that find the cluster hibernating, found %d", histories, hibernations)
	}
}
