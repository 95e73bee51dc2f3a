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

func TestAGroupOfMachinesIsNamed(t *testing.T) {
	o := observedCluster(hivev1.PowerStateHibernating, nil, actuator.Running, machineOfGroup(0), machineOfGroup(1))
	for _, text := range []string{UnsupportedReason(o), Decide(o).Hibernating.Message} {
		if !strings.Contains(text, "group workers-a, which") {
			t.Errorf("expected a message that names workers-a once, found %q", text)
		}
	}
	for i := range 7 {
		o.Machines = append(o.Machines, actuator.Machine{State: actuator.Running, Group: fmt.Sprintf("workers-%d", i)})
	}
	if text := UnsupportedReason(o); !strings.Contains(text, "workers-4 and 3 more, which") {
		t.Errorf("expected a message that names five groups, found %q", text)
	}
}

func TestClustersWithStoppedGroupMembersKeepHibernating(t *testing.T) {
	o := observedCluster(hivev1.PowerStateHibernating, openRecord(), actuator.Stopped, machineOfGroup(0))
	if p := Decide(o); p.Rule != "hibernating" || UnsupportedReason(o) != "" {
		t.Errorf("expected the cluster to keep hibernating, found rule %q and %q", p.Rule, UnsupportedReason(o))
	}
}

// groupedCluster is a cluster that should hibernate with the given option. It has a control-plane machine and a
// worker of a group.
func groupedCluster(mode string, edit func(*Observed)) Observed {
	o := observedCluster(hivev1.PowerStateHibernating, nil, actuator.Running, machineOfGroup(1))
	o.Machines[0].Role, o.Machines[1].Role = actuator.ControlPlaneRole, actuator.WorkerRole
	o.Options.MachineGroups, o.CanChangeGroups, o.Groups = mode, true, []actuator.Group{workersGroup()}
	if edit != nil {
		edit(&o)
	}
	return o
}

// addGroups adds groups with one running machine each.
func addGroups(o *Observed, count int) {
	for i := range count {
		group := workersGroup()
		group.Name = fmt.Sprintf("z-%d", i)
		o.Groups = append(o.Groups, group)
		o.Machines = append(o.Machines, actuator.Machine{State: actuator.Running, Role: actuator.WorkerRole, Group: group.Name})
	}
}

func workersGroup(suspended ...string) actuator.Group {
	return actuator.Group{Name: "workers-a", Processes: []string{"Health", "Launch"}, Suspended: suspended, Min: 1, Desired: 2, InService: 1}
}

func TestGroupsThatCannotBeHeldAreRefused(t *testing.T) {
	const suspend, scale = hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero
	for name, row := range map[string]struct {
		mode string
		edit func(*Observed)
		want string
	}{
		"group without the annotation is refused with advice to set suspend or scale-to-zero": {"", nil, "or set the annotation torpor.dev/machine-groups to suspend or scale-to-zero"},
		"group that cannot be changed is refused":                                             {suspend, func(o *Observed) { o.CanChangeGroups = false }, "which terminates and replaces them"},
		"group that the cloud's API does not return is refused":                               {suspend, func(o *Observed) { o.Groups = nil }, "which the cloud's API does not return"},
		"group that can be suspended is not refused":                                          {suspend, nil, ""},
		"group that can be scaled to zero is not refused":                                     {scale, nil, ""},
		"group that cannot be scaled is not refused with the mode suspend":                    {suspend, func(o *Observed) { o.Groups[0].Unscalable = "its process Launch is suspended" }, ""},
		"group that cannot be scaled is refused with the mode scale-to-zero":                  {scale, func(o *Observed) { o.Groups[0].Unscalable = "its process Launch is suspended" }, "cannot be scaled to zero, because its process Launch is suspended"},
		"control plane with the mode scale-to-zero is refused":                                {scale, func(o *Observed) { o.Machines[0].Group = "workers-a" }, "the disks of its machines of the control plane would be lost"},
		"recorded group without the annotation is not refused": {"", func(o *Observed) {
			o.Record = openRecord()
			o.Record.MachineGroups = []hivev1.MachineGroupRecord{{Name: "workers-a", Mode: suspend}}
		}, ""},
		"more groups than the record can hold are refused": {suspend, func(o *Observed) { addGroups(o, maxGroups) }, "Expected at most 100 machine groups to suspend, pause or scale to zero, found 101"},
		"group that a full record of a hibernation in progress cannot hold is refused": {suspend, func(o *Observed) {
			o.Record = openRecord()
			addGroups(o, maxGroups)
			for _, g := range o.Groups[1:] {
				o.Record.MachineGroups = append(o.Record.MachineGroups, hivev1.MachineGroupRecord{Name: g.Name, Mode: suspend})
			}
		}, "found 101"},
		"as many groups as the record can hold are not refused": {suspend, func(o *Observed) { addGroups(o, maxGroups-1) }, ""},
		"hibernation with an invalid annotation is refused":     {"", func(o *Observed) { o.Options.InvalidMachineGroups = "Expected suspend" }, "Expected suspend"},
		"hibernation in progress is not refused because of an invalid annotation": {"", func(o *Observed) {
			o.Options.InvalidMachineGroups, o.Record = "Expected suspend", openRecord()
			o.Machines = o.Machines[:1]
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := groupedCluster(row.mode, row.edit)
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

func TestMachineGroupsOption(t *testing.T) {
	for value, want := range map[string]string{"suspend": "", "scale-to-zero": "", "": `found ""`, "Suspend": `found "Suspend"`} {
		o := ReadStopOptions(map[string]string{hivev1.MachineGroupsAnnotation: value})
		if !strings.Contains(o.InvalidMachineGroups, want) || (want == "") != (o.InvalidMachineGroups == "") || (want == "") != (o.MachineGroups == value && value != "") {
			t.Errorf("%q: found %+v", value, o)
		}
	}
}

// groupedObservations vary a worker of a group, the record and the state of the group.
func groupedObservations() []Observed {
	back := []ObservedNode{
		{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: modelTime().Add(-time.Second)},
		{RecordedNode: hivev1.RecordedNode{Name: "n1", UID: "uid-n1", Ready: true}, LastSeen: modelTime().Add(-time.Second)},
	}
	records := slices.DeleteFunc(hibernationRecords(), func(r *hivev1.HibernationRecord) bool {
		return r != nil && (r.Drain != nil || len(r.SpotMachines) > 0 || len(r.BrokenOperators) > 0)
	})
	var list []Observed
	for _, mode := range []string{hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero} {
		entries := [][]hivev1.MachineGroupRecord{nil, {{Name: "workers-a", Mode: mode, Suspended: []string{"Launch"}}}, {{Name: "workers-a", Mode: mode, MinSize: 1, DesiredSize: 2}}}
		for _, record := range records {
			for _, entry := range entries {
				for _, group := range []actuator.Group{workersGroup(), workersGroup("Launch"), workersGroup("Health", "Launch"), {Name: "workers-a"}} {
					for _, machines := range groupedMachines() {
						for _, want := range []hivev1.PowerState{hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
							for _, cluster := range []Observed{{APIMessage: "No answer"}, {API: Unreachable, APIMessage: "No answer"}, {API: Reachable, Nodes: back}} {
								o := cluster
								o.Installed, o.Now, o.DesiredPowerState, o.Machines = true, modelTime(), want, machines
								o.Options.MachineGroups, o.CanChangeGroups, o.Groups = mode, true, []actuator.Group{group}
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

func groupedMachines() [][]actuator.Machine {
	states := []actuator.MachineState{actuator.Running, actuator.Stopping, actuator.Stopped, actuator.Starting}
	var list [][]actuator.Machine
	for _, first := range states {
		list = append(list, []actuator.Machine{{ID: "i-0", State: first}})
		for _, second := range states {
			list = append(list, []actuator.Machine{{ID: "i-0", State: first}, {ID: "i-1", State: second, Group: "workers-a"}})
		}
	}
	return append(list, nil)
}

// runningMachinesToStop are the running machines that no group terminates.
func (o Observed) runningMachinesToStop() []string {
	var ids []string
	for _, m := range o.Machines {
		isScaled := o.Record != nil && slices.ContainsFunc(o.Record.MachineGroups, func(r hivev1.MachineGroupRecord) bool {
			return r.Name == m.Group && r.Mode == hivev1.MachineGroupsScaleToZero
		})
		if m.State == actuator.Running && !isScaled {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// hasActiveGroup reports whether one of the machines is a member of a group with an active process.
func (o Observed) hasActiveGroup(ids []string) bool {
	return slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool {
		isHeld := slices.ContainsFunc(o.Groups, func(g actuator.Group) bool { return g.Name == m.Group && len(g.Suspended) == len(g.Processes) })
		return m.Group != "" && slices.Contains(ids, m.ID) && !isHeld
	})
}

// changesOthers reports whether a change concerns a group without a record, or differs from the record.
func (o Observed) changesOthers(changes []actuator.GroupChange) bool {
	return len(changes) == 0 || slices.ContainsFunc(changes, func(c actuator.GroupChange) bool {
		return !slices.ContainsFunc(o.Record.MachineGroups, func(r hivev1.MachineGroupRecord) bool {
			return r.Name == c.Name && (c.Size != nil) == (r.Mode == hivev1.MachineGroupsScaleToZero) && (c.Size == nil || len(c.Suspend)+len(c.Resume) == 0)
		})
	})
}

// resumesTooEarly reports whether a change resumes a process while a member does not run, or resumes a process that
// was suspended before the hibernation.
func (o Observed) resumesTooEarly(changes []actuator.GroupChange) bool {
	return slices.ContainsFunc(changes, func(c actuator.GroupChange) bool {
		isOff := func(m actuator.Machine) bool {
			return (m.Group == c.Name || !IsGroupOfCloud(c.Name)) && m.State != actuator.Running
		}
		wasSuspended := func(process string) bool { return slices.Contains(o.recordedGroup(c.Name).Suspended, process) }
		return len(c.Resume) > 0 && (slices.ContainsFunc(o.Machines, isOff) || slices.ContainsFunc(c.Resume, wasSuspended))
	})
}

// groupWorld is a model of a cluster in a cloud, with one machine outside of groups, and a group that immediately
// replaces machines that do not run.
type groupWorld struct {
	mode    string
	isOfEKS bool
	// holdsAPI is true if the API server answers only while a member of the group runs.
	holdsAPI  bool
	machines  map[string]actuator.MachineState
	members   []string
	unhealthy map[string]bool
	group     actuator.Group
	// next is the size after an update of EKS. For some seconds, EKS returns the former size and accepts no other
	// update.
	next       *actuator.GroupSize
	busy       int
	launched   int
	terminated int
	// record is the saved status, and desired is the power state that the user wants.
	record  *hivev1.HibernationRecord
	desired hivev1.PowerState
	now     time.Time
	// seen is the time at which a node of the cluster last reported.
	seen time.Time
}

func newGroupWorld(mode string, random *rand.Rand) *groupWorld {
	w := &groupWorld{mode: mode, machines: map[string]actuator.MachineState{"i-0": actuator.Running}, unhealthy: map[string]bool{}, now: modelTime(), desired: hivev1.PowerStateRunning}
	w.group = actuator.Group{Name: "workers-a", Processes: []string{"Health", "Launch", "Terminate"}, Min: int32(random.IntN(2)), Desired: 1 + int32(random.IntN(2))}
	w.act()
	for _, process := range w.group.Processes {
		if mayBe := mode == hivev1.MachineGroupsSuspend || process == "Health"; mayBe && random.IntN(4) == 0 {
			w.group.Suspended = append(w.group.Suspended, process)
		}
	}
	return w
}

// act advances the machines and the group.
func (w *groupWorld) act() {
	w.now = w.now.Add(time.Second)
	if w.busy--; w.next != nil && w.busy <= 0 {
		w.group.Min, w.group.Desired, w.next = w.next.Min, w.next.Desired, nil
	}
	for id, state := range w.machines {
		switch state {
		case actuator.Stopping:
			w.machines[id] = actuator.Stopped
		case actuator.Starting:
			w.machines[id] = actuator.Running
		case actuator.Running, actuator.Stopped:
		}
	}
	active := w.group.ActiveProcesses()
	var left []string
	for _, id := range w.members {
		isOff := w.machines[id] == actuator.Stopping || w.machines[id] == actuator.Stopped
		w.unhealthy[id] = w.unhealthy[id] || isOff && slices.Contains(active, "Health")
		if slices.Contains(active, "Terminate") && (w.unhealthy[id] || len(left) >= int(w.group.Desired)) {
			delete(w.machines, id)
			w.terminated++
			continue
		}
		left = append(left, id)
	}
	for len(left) < int(w.group.Desired) && slices.Contains(active, "Launch") {
		w.launched++
		id := fmt.Sprintf("i-%d", w.launched)
		w.machines[id] = actuator.Starting
		left = append(left, id)
	}
	w.members = left
	if w.machines["i-0"] == actuator.Running {
		w.seen = w.now
	}
}

func (w *groupWorld) observe() Observed {
	o := Observed{Installed: true, Now: w.now, DesiredPowerState: w.desired, Record: w.record.DeepCopy(), CanChangeGroups: true, Options: StopOptions{MachineGroups: w.mode}}
	for _, id := range append([]string{"i-0"}, w.members...) {
		m := actuator.Machine{ID: id, State: w.machines[id]}
		if id != "i-0" {
			m.Group = w.group.Name
		}
		o.Machines = append(o.Machines, m)
	}
	group := w.group
	group.Suspended, group.InService = slices.Clone(group.Suspended), int32(len(w.members))
	if w.next != nil {
		group.Unsettled, group.Unscalable = "EKS is updating it", "EKS is updating it"
	}
	o.Groups = []actuator.Group{group}
	switch {
	case !NeedsCluster(o):
	case w.machines["i-0"] != actuator.Running, w.holdsAPI && !slices.ContainsFunc(w.members, func(id string) bool { return w.machines[id] == actuator.Running }):
		o.API, o.APIMessage = Unreachable, "No answer"
	default:
		o.API = Reachable
		if NeedsNodes(o) {
			o.Nodes = []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: w.seen}}
		}
	}
	return o
}

func (w *groupWorld) apply(do Action) {
	switch do := do.(type) {
	case StopMachines:
		w.order(do.IDs, actuator.Running, actuator.Stopping)
	case StartMachines:
		w.order(do.IDs, actuator.Stopped, actuator.Starting)
	case HoldGroups:
		w.change(do.Changes)
	case ReleaseGroups:
		w.change(do.Changes)
	case NoAction, TerminateMachines, ApproveRequests, ReplaceMachines, DrainWorkers, UncordonNodes:
	}
}

func (w *groupWorld) order(ids []string, from, to actuator.MachineState) {
	for _, id := range ids {
		if w.machines[id] == from {
			w.machines[id] = to
		}
	}
}

func (w *groupWorld) change(changes []actuator.GroupChange) {
	for _, c := range changes {
		w.group.Suspended = slices.DeleteFunc(slices.Concat(w.group.Suspended, c.Suspend), func(p string) bool { return slices.Contains(c.Resume, p) })
		slices.Sort(w.group.Suspended)
		w.group.Suspended = slices.Compact(w.group.Suspended)
		switch {
		case c.Size == nil:
		case !w.isOfEKS:
			w.group.Min, w.group.Desired = c.Size.Min, c.Size.Desired
		case w.next == nil:
			w.next, w.busy = c.Size, 1+len(w.members)
		}
	}
}

// pass is one pass of a manager. The manager may crash before the action, or before the status is saved.
func (w *groupWorld) pass(random *rand.Rand) Plan {
	p := Decide(w.observe())
	death := random.IntN(6)
	if death != 0 {
		w.apply(p.Do)
	}
	if death > 1 {
		w.record = p.Record
	}
	return p
}

// TestGroupHistoriesTerminateNoMachine runs random histories in which users change their minds and managers crash
// between any two actions. EKS sets the size of some groups, and some API servers depend on the group. A suspended group
// loses no machine. At the end the cluster runs, and each group is in its earlier state.
func TestGroupHistoriesTerminateNoMachine(t *testing.T) {
	const histories, maxFlips, maxPasses = 10_000, 6, 200
	hibernations := 0
	for seed := range uint64(histories) {
		random := rand.New(rand.NewPCG(seed, 0))
		mode := []string{hivev1.MachineGroupsSuspend, hivev1.MachineGroupsScaleToZero}[seed%2]
		w := newGroupWorld(mode, random)
		w.isOfEKS, w.holdsAPI = seed%4 == 3, seed%3 == 0
		w.act()
		before := w.group
		before.Suspended = slices.Clone(before.Suspended)
		for range 1 + random.IntN(maxFlips) {
			w.desired = []hivev1.PowerState{hivev1.PowerStateHibernating, hivev1.PowerStateRunning}[random.IntN(2)]
			for range random.IntN(30) {
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
		isBack := slices.Equal(w.group.Suspended, before.Suspended) && w.group.Min == before.Min && w.group.Desired == before.Desired
		if last.Rule != "running" || !isBack || mode == hivev1.MachineGroupsSuspend && w.terminated > 0 || w.record != nil && len(w.record.MachineGroups) > 0 {
			t.Fatalf("history %d with %s: rule %q, %d machines terminated, the group %+v was %+v before, record %+v", seed, mode, last.Rule, w.terminated, w.group, before, w.record)
		}
	}
	t.Logf("%d histories, and %d passes that found the cluster hibernating", histories, hibernations)
	if hibernations < histories {
		t.Errorf("expected at least %d passes that find the cluster hibernating, found %d", histories, hibernations)
	}
}

// The sizes of a group are recorded before it is scaled, and its processes before they are suspended.
func TestGroupsAreRecordedBeforeTheyAreHeld(t *testing.T) {
	for mode, want := range map[string]hivev1.MachineGroupRecord{
		hivev1.MachineGroupsSuspend:     {Name: "workers-a", Mode: hivev1.MachineGroupsSuspend, Suspended: []string{"Launch"}},
		hivev1.MachineGroupsScaleToZero: {Name: "workers-a", Mode: hivev1.MachineGroupsScaleToZero, MinSize: 1, DesiredSize: 2},
	} {
		for name, record := range map[string]*hivev1.HibernationRecord{"record nodes": nil, "record machine groups": {SleepStartedAt: metav1.NewTime(observedCluster("", nil, "").Now)}} {
			o := groupedCluster(mode, func(o *Observed) { o.Record, o.Groups[0] = record, workersGroup("Launch") })
			o.API = Reachable
			p := Decide(o)
			if _, isNothing := p.Do.(NoAction); p.Rule != name || !isNothing || fmt.Sprint(p.Record.MachineGroups) != fmt.Sprint([]hivev1.MachineGroupRecord{want}) {
				t.Errorf("%s: expected the record %+v and no action by %q, found %+v, %T by %q", mode, want, name, p.Record.MachineGroups, p.Do, p.Rule)
			}
		}
	}
}

// While EKS updates a group, its size counts neither as zero nor as restored.
func TestUnsettledGroupsAreAwaited(t *testing.T) {
	recorded := func(o *Observed) {
		o.Record = openRecord()
		o.Record.MachineGroups = []hivev1.MachineGroupRecord{{Name: "workers-a", Mode: hivev1.MachineGroupsScaleToZero, MinSize: 1, DesiredSize: 2}}
		o.Groups[0].Unsettled = "EKS is updating it"
	}
	for name, row := range map[string]struct {
		edit       func(*Observed)
		rule, text string
	}{
		"EKS update from a size above zero during the stop: Torpor waits without an order": {func(*Observed) {}, "suspend, pause or scale machine groups", "scaled to zero: workers-a (EKS is updating it)"},
		"EKS update at a size of zero during the stop: Torpor waits without an order":      {func(o *Observed) { o.Groups[0].Min, o.Groups[0].Desired, o.Machines = 0, 0, o.Machines[:1] }, "suspend, pause or scale machine groups", "(EKS is updating it)"},
		"EKS update at a size of zero and without machines: not hibernating yet":           {func(o *Observed) { o.Groups[0].Min, o.Groups[0].Desired, o.Machines = 0, 0, nil }, "suspend, pause or scale machine groups", "(EKS is updating it)"},
		"EKS update during the hibernation: stays hibernating": {func(o *Observed) {
			o.Groups[0].Min, o.Groups[0].Desired, o.Machines, o.Record.AsleepAt = 0, 0, nil, new(metav1.NewTime(o.Now))
		}, "hibernating", ""},
		"EKS update at the former size during the resume: group is not restored yet": {func(o *Observed) {
			o.DesiredPowerState, o.Record.ResumeStartedAt, o.Groups[0].InService = hivev1.PowerStateRunning, new(metav1.NewTime(o.Now.Add(-time.Second))), 2
			o.API, o.Nodes = Reachable, []ObservedNode{{RecordedNode: hivev1.RecordedNode{Name: "n0", UID: "uid-n0", Ready: true}, LastSeen: o.Now}}
		}, "resuming, machine groups not restored", "(EKS is updating it)"},
	} {
		t.Run(name, func(t *testing.T) {
			o := groupedCluster(hivev1.MachineGroupsScaleToZero, func(o *Observed) { recorded(o); row.edit(o) })
			p := Decide(o)
			if _, isNothing := p.Do.(NoAction); p.Rule != row.rule || !isNothing || !strings.Contains(p.Ready.Message, row.text) || len(p.Record.MachineGroups) != 1 || p.Record.MachineGroups[0].RestoredAt != nil {
				t.Errorf("expected rule %q without an action and %q, found %q, %T and %q, record %+v", row.rule, row.text, p.Rule, p.Do, p.Ready.Message, p.Record.MachineGroups)
			}
		})
	}
}
