// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"iter"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Every small Observed has a complete plan, and every Observed that can occur has a harmless plan.
func TestEveryObservationHasAHarmlessPlan(t *testing.T) {
	total, possible, failures := 0, 0, 0
	used := map[string]int{}
	for o := range observations() {
		before := copyOf(o)
		p := Decide(o)
		total++
		used[p.Rule]++
		wrong := append(incompleteParts(p), sideEffects(o, before, p)...)
		if canBeObserved(o) {
			possible++
			wrong = append(wrong, harmfulEffects(o, p)...)
		}
		if len(wrong) > 0 && failures < 5 {
			failures++
			t.Errorf("%v:\nobserved %+v\nrecord %+v\nplan %+v", wrong, o, o.Record, p)
		}
	}
	for _, r := range Rules() {
		if used[r.Name] == 0 {
			t.Errorf("expected an observation for the rule %q, found none", r.Name)
		}
	}
	t.Logf("%d observations, %d of them possible, for %d rules", total, possible, len(used))
}

func sideEffects(o, before Observed, p Plan) []string {
	var wrong []string
	if !reflect.DeepEqual(o, before) {
		wrong = append(wrong, "changes the observation")
	}
	if !reflect.DeepEqual(p, Decide(before)) {
		wrong = append(wrong, "decides differently the second time")
	}
	if o.DesiredPowerState == "" {
		before.DesiredPowerState = hivev1.PowerStateRunning
		if !reflect.DeepEqual(p, Decide(before)) {
			wrong = append(wrong, "an empty power state is not Running")
		}
	}
	return wrong
}

var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// incompleteParts returns the parts of a plan that the API server or a reader would miss.
func incompleteParts(p Plan) []string {
	var wrong []string
	if !slices.ContainsFunc(Rules(), func(r decision.Rule[Observed, Plan]) bool { return r.Name == p.Rule }) || p.Do == nil {
		wrong = append(wrong, "no named rule or no action")
	}
	for _, c := range []decision.Condition{p.Hibernating, p.Ready, p.Unreachable} {
		status := c.Status == metav1.ConditionTrue || c.Status == metav1.ConditionFalse || c.Status == metav1.ConditionUnknown
		if !status || !reasonPattern.MatchString(c.Reason) || c.Message == "" {
			wrong = append(wrong, "incomplete condition")
		}
	}
	statuses := map[string]metav1.ConditionStatus{
		hivev1.StoppingHibernationReason: metav1.ConditionTrue, hivev1.HibernatingHibernationReason: metav1.ConditionTrue,
		hivev1.ResumingHibernationReason: metav1.ConditionTrue,
		hivev1.RunningHibernationReason:  metav1.ConditionFalse, hivev1.UnsupportedHibernationReason: metav1.ConditionFalse,
		hivev1.SyncSetsNotAppliedReason: metav1.ConditionFalse, hivev1.RefusedHibernationReason: metav1.ConditionFalse,
	}
	want, named := statuses[p.Hibernating.Reason]
	if !named {
		want = metav1.ConditionUnknown
	}
	if p.Hibernating.Status != want {
		wrong = append(wrong, "a reason of Hibernating with another status than its own")
	}
	if p.Hibernating.Status != metav1.ConditionFalse && p.Ready.Status == metav1.ConditionTrue {
		wrong = append(wrong, "ready although it hibernates")
	}
	if p.RequeueAfter != 0 && (p.RequeueAfter < shortestInterval(p.Rule) || p.RequeueAfter > longestInterval(p.Rule)) || (p.RequeueAfter == 0) != (shortestInterval(p.Rule) == 0) {
		wrong = append(wrong, "requeues at a wrong time")
	}
	return wrong
}

// longestInterval returns the longest time until the next pass.
func longestInterval(rule string) time.Duration {
	if rule == "hibernating" {
		return asleepInterval
	}
	return driftInterval
}

// shortestInterval returns the shortest time until the next pass; zero if only an event can change anything.
func shortestInterval(rule string) time.Duration {
	switch rule {
	case "ClusterDeployment is being deleted", "not installed", "invalid spec":
		return 0
	case "record nodes", "record resume start", "record spot machines", "record machine groups", "record paused groups", "record drain end": // Rules that save the record: the next pass decides differently.
		return immediately
	case "machines are starting", "resuming, API server not reachable", "resuming, nodes have not reported", "resuming, nodes cordoned", "running in part", "running":
		return minProbeInterval
	default:
		return minCloudInterval
	}
}

// canBeObserved reports whether each field was read because the fields read before require it.
func canBeObserved(o Observed) bool {
	cloudAsked := o.ObservationError != nil || len(o.Machines) > 0
	switch {
	case cloudAsked && !NeedsCloud(o), o.ObservationError != nil && len(o.Machines) > 0:
		return false
	case (o.API != NotProbed) != NeedsCluster(o):
		return false
	case o.Refusal != nil && len(o.Machines) == 0:
		return false
	case len(o.Nodes) > 0 && !NeedsNodes(o), len(o.Approvable) > 0 && !NeedsCertificateRequests(o), o.HasReadMachines && !NeedsMachines(o):
		return false
	case len(o.Operators) > 0 && !NeedsOperators(o), o.Pods.IsRead != (NeedsPods(o) && o.API == Reachable):
		return false
	default:
		return o.API == Reachable || len(o.Nodes)+len(o.Approvable)+len(o.Replaceable) == 0
	}
}

// harmfulEffects returns the harm that a plan would cause, given a possible observation.
func harmfulEffects(o Observed, p Plan) []string {
	var wrong []string
	blocked := o.Deleted || o.Paused || !o.Installed || o.Invalid != "" || o.NoActuator != "" || o.ObservationError != nil
	switch do := p.Do.(type) {
	case StopMachines:
		if !o.shouldHibernate() || o.Record == nil || o.Record.ResumeStartedAt != nil || blocked {
			wrong = append(wrong, "stops although that is not requested, is blocked or no record is saved")
		}
		if !slices.Equal(slices.Concat(do.StoppedLater, do.IDs, o.recordedSpotMachines(actuator.Running)), o.runningMachinesToStop()) || len(do.IDs) == 0 {
			wrong = append(wrong, "stops others than the running machines that are not terminated")
		}
		if o.hasActiveGroup(do.IDs) {
			wrong = append(wrong, "stops a member of a group that would replace it")
		}
		if o.hasActiveController() {
			wrong = append(wrong, "stops a machine that a controller would replace")
		}
		if isKept := o.keepsControlPlaneOn(); isKept == slices.Contains(do.IDs, "i-0") && o.Machines[0].State == actuator.Running {
			wrong = append(wrong, "stops the control plane too early or too late")
		}
	case TerminateMachines:
		if !o.shouldHibernate() || o.Record == nil || o.Record.ResumeStartedAt != nil || blocked {
			wrong = append(wrong, "terminates although that is not requested, is blocked or no record is saved")
		}
		others := len(o.Machines) - len(do.IDs)
		if !slices.Equal(do.IDs, o.recordedSpotMachines(actuator.Running, actuator.Starting)) || len(do.IDs) == 0 || others == 0 || len(o.machineIDs(actuator.Stopped)) != others {
			wrong = append(wrong, "terminates a machine that is not in the record, or before every other machine is stopped")
		}
	case ReplaceMachines:
		for _, m := range do.Machines {
			isAtCloud := slices.ContainsFunc(o.Machines, func(at actuator.Machine) bool { return at.ID == m.ID })
			if o.shouldHibernate() || o.API != Reachable || isAtCloud || !slices.Contains(o.Record.SpotMachines, m.ID) {
				wrong = append(wrong, "replaces a machine that was not terminated, or in a cluster that should hibernate")
			}
		}
	case StartMachines:
		isSafe := o.Record != nil && o.Record.ResumeStartedAt != nil || o.anyMachineIs(actuator.Running)
		if o.shouldHibernate() && !o.hasUnrecordedSpotMachine() || !isSafe || blocked {
			wrong = append(wrong, "starts although that is not requested, is blocked or no record is saved")
		}
		if !slices.Equal(do.IDs, o.startableMachines()) || len(do.IDs) == 0 {
			wrong = append(wrong, "starts others than the stopped machines, or a worker before its time")
		}
	case ApproveRequests:
		if o.shouldHibernate() || o.API != Reachable || !slices.Equal(do.Requests, o.Approvable) {
			wrong = append(wrong, "approves others than the approvable requests of a cluster that should run")
		}
	case DrainWorkers:
		isDraining := o.shouldHibernate() && o.Record != nil && o.Record.ResumeStartedAt == nil && o.Record.Drain != nil && o.Record.Drain.EndedAt == nil
		if !isDraining || blocked || o.API != Reachable || o.Now.Sub(o.Record.SleepStartedAt.Time) >= o.Options.DrainBudget {
			wrong = append(wrong, "drains although that is not requested, is blocked or the budget is used up")
		}
	case UncordonNodes:
		if o.shouldHibernate() || o.API != Reachable {
			wrong = append(wrong, "uncordons nodes of a cluster that should hibernate or does not answer")
		}
	case HoldGroups:
		if !o.shouldHibernate() || o.Record == nil || o.Record.ResumeStartedAt != nil || blocked || o.changesOthers(do.Changes) {
			wrong = append(wrong, "holds a group although that is not requested, is blocked or no record of it is saved")
		}
	case ReleaseGroups:
		if o.shouldHibernate() || o.Record == nil || blocked || o.changesOthers(do.Changes) || o.resumesTooEarly(do.Changes) {
			wrong = append(wrong, "sets a group back in a cluster that should hibernate, before its members run, or without a record of it")
		}
	case NoAction:
	}
	if startable := o.startableMachines(); !o.shouldHibernate() && len(startable) > 0 && !blocked && o.isResuming() && len(o.Approvable) == 0 && len(o.machinesToReplace()) == 0 && len(o.nodesToUncordon()) == 0 && len(o.groupsToRelease()) == 0 &&
		!reflect.DeepEqual(p.Do, StartMachines{IDs: startable}) {
		wrong = append(wrong, "leaves machines off")
	}
	isOverdue := o.isOrderedResume() && !o.isRefused("i-1") && o.Machines[1].State == actuator.Stopped && o.Now.Sub(o.Record.ResumeStartedAt.Time) > controlPlaneStartWindow
	if !o.shouldHibernate() && len(o.Approvable) > 0 && !blocked && !isOverdue && p.Rule != "record resume start" && !reflect.DeepEqual(p.Do, ApproveRequests{Requests: o.Approvable}) {
		wrong = append(wrong, "leaves nodes without their certificates")
	}
	if p.Hibernating.Reason == hivev1.HibernatingHibernationReason && !o.allMachinesAre(actuator.Stopped) && (len(o.Machines) > 0 || !o.hasScaledGroups()) {
		wrong = append(wrong, "hibernates with a machine that is not stopped, or without any")
	}
	isWhole := p.Rule == "requested hibernation not supported" && !o.hasNotResumed() || (o.NoActuator != "" || everyKnownMachineRuns(o)) && (!o.hasNotResumed() || nodesBack(o))
	// Before a hibernation, operators are read for the record only.
	isBroken := !o.shouldHibernate() && slices.ContainsFunc(o.Operators, func(op ObservedOperator) bool { return op.Problem != "" })
	isWhole = isWhole && !o.awaitsReplacement() && len(o.heldGroups()) == 0 && o.unconfirmedNote() == "" && !isBroken || p.Rule == "infrastructure disabled" // Ready reports the API server only.
	isInResume := !o.shouldHibernate() && o.Record != nil && o.Record.ResumeStartedAt != nil && o.Record.ReadyInPartAt == nil && len(o.Record.BrokenOperators) == 0
	isSilent := isInResume && slices.ContainsFunc(o.Operators, func(op ObservedOperator) bool { return !op.LastSeen.After(o.Record.ResumeStartedAt.Time) })
	if p.Ready.Status == metav1.ConditionTrue && isInResume && (isBroken || isSilent) && o.Now.Sub(o.Record.ResumeStartedAt.Time) < partialResumeAfter {
		wrong = append(wrong, "is ready before its operators, and before the wait for them ends")
	}
	if p.Ready.Status == metav1.ConditionTrue && (o.API != Reachable || isWhole == (p.Degraded.Status == metav1.ConditionTrue)) {
		wrong = append(wrong, "is ready without its API server, or lacks machines or nodes and is not degraded")
	}
	if p.Ready.Status == metav1.ConditionTrue && !isWhole && o.isResuming() && !o.mayRunInPart() {
		wrong = append(wrong, "runs in part before its time")
	}
	if o.Options.RequiresPossible && o.Obstacles != "" && o.shouldHibernate() && !o.isPoweredOff() && (o.Record == nil || o.Record.ResumedAt != nil) && !reflect.DeepEqual(p.Record, o.Record) {
		wrong = append(wrong, "begins a hibernation that is refused")
	}
	if o.Record != nil && (p.Record == nil || len(p.Record.Nodes) == 0 && len(o.Record.Nodes) > 0) {
		wrong = append(wrong, "loses its record")
	}
	return wrong
}

// keepsControlPlaneOn reports whether the first machine must wait for the second one, a worker that is still on.
func (o Observed) keepsControlPlaneOn() bool {
	if !o.Options.WorkersFirst || len(o.Machines) < 2 || o.Machines[1].State == actuator.Stopped {
		return false
	}
	isTerminated := slices.Contains(o.recordedSpotMachines(o.Machines[1].State), "i-1")
	return !isTerminated && (o.isRefused("i-1") || o.Now.Sub(o.Record.SleepStartedAt.Time) < workersStopWindow)
}

func (o Observed) isOrderedResume() bool {
	return o.Options.WorkersFirst && len(o.Machines) == 2 && o.isResuming()
}

// startableMachines are the stopped machines, except a worker that must wait for the control plane.
func (o Observed) startableMachines() []string {
	stopped := o.machineIDs(actuator.Stopped)
	if !o.isOrderedResume() || o.Now.Sub(o.Record.ResumeStartedAt.Time) > controlPlaneStartWindow {
		return stopped
	}
	if isUp := o.Machines[0].State == actuator.Running || o.isRefused("i-0"); isUp && o.API == Reachable {
		return stopped
	}
	return slices.DeleteFunc(stopped, func(id string) bool { return id == "i-1" })
}

// recordedSpotMachines are the recorded spot machines in one of the given states.
func (o Observed) recordedSpotMachines(states ...actuator.MachineState) []string {
	var ids []string
	for _, m := range o.Machines {
		if m.Spot && slices.Contains(states, m.State) && o.Record != nil && slices.Contains(o.Record.SpotMachines, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// hasUnrecordedSpotMachine reports whether a spot machine runs that is missing in the saved record of a hibernation.
func (o Observed) hasUnrecordedSpotMachine() bool {
	return o.Record != nil && o.Record.ResumeStartedAt == nil && slices.ContainsFunc(o.Machines, func(m actuator.Machine) bool {
		return m.Spot && m.State == actuator.Running && !slices.Contains(o.Record.SpotMachines, m.ID)
	})
}

// everyKnownMachineRuns reports whether all machines run. If the cluster is not resuming, a machine that starts while
// another one runs is new and does not count.
func everyKnownMachineRuns(o Observed) bool {
	if o.hasNotResumed() {
		return o.allMachinesAre(actuator.Running)
	}
	return len(o.machineIDs(actuator.Running)) > 0 && len(o.machineIDs(actuator.Stopped, actuator.Stopping)) == 0
}

// nodesBack reports whether every node recorded as ready has reported in the resume, or every node if none was
// recorded.
func nodesBack(o Observed) bool {
	if o.isHibernationOpen() || len(o.Nodes) == 0 {
		return false
	}
	for _, n := range o.Nodes {
		at := slices.IndexFunc(o.Record.Nodes, func(r hivev1.RecordedNode) bool { return r.Name == n.Name && r.Ready })
		counts := at >= 0 || len(o.Record.Nodes) == 0
		if counts && (!n.Ready || !n.LastSeen.After(o.Record.ResumeStartedAt.Time)) {
			return false
		}
	}
	return true
}

func copyOf(o Observed) Observed {
	o.Record = o.Record.DeepCopy()
	o.Groups = slices.Clone(o.Groups)
	o.Machines, o.Nodes, o.Approvable, o.Replaceable = slices.Clone(o.Machines), slices.Clone(o.Nodes), slices.Clone(o.Approvable), slices.Clone(o.Replaceable)
	if o.ObservationError != nil {
		o.ObservationError = new(*o.ObservationError)
	}
	return o
}

// observations are all values of Observed over few machines, nodes and times.
func observations() iter.Seq[Observed] {
	return func(yield func(Observed) bool) {
		for _, o := range append(groupedObservations(), pausedObservations()...) {
			if !yield(o) {
				return
			}
		}
		for _, o := range objectFacts() {
			for _, machines := range machineSets() {
				o.Options.WorkersFirst = len(machines) > 0 && machines[0].Role != actuator.UnknownRole
				if o.Options.WorkersFirst && !mayBeOrdered(o) {
					continue // The rules that apply to these observations do not depend on the order.
				}
				for _, cluster := range apiObservations() {
					for _, refusal := range []*OrderRefusal{nil, {ObservationError{actuator.NoCapacity, "No room"}, []string{"i-1"}}, {ObservationError{actuator.Other, "Protected"}, []string{"i-0"}}} {
						o.Machines, o.API, o.APIMessage = machines, cluster.API, cluster.APIMessage
						o.Nodes, o.Approvable, o.Refusal = cluster.Nodes, cluster.Approvable, refusal
						o.Pods = cluster.Pods
						o.Replaceable, o.HasReadMachines, o.Operators = cluster.Replaceable, cluster.HasReadMachines, cluster.Operators
						if !yield(o) {
							return
						}
					}
				}
			}
		}
	}
}

func mayBeOrdered(o Observed) bool {
	return NeedsCloud(o) && o.Incompatible == "" && o.ObservationError == nil && o.SyncAwaitedUntil.IsZero() && o.RequestedAt.IsZero()
}

// objectFacts vary the fields that are read from the object, and whether the machines could be listed.
func objectFacts() []Observed {
	var list []Observed
	for _, early := range []Observed{
		{Installed: true},
		{Installed: true, Deleted: true},
		{Installed: true, Paused: true},
		{},
		{Installed: true, Invalid: "A field is missing"},
		{Installed: true, NoActuator: "No actuator"},
		{Installed: true, NoActuator: "Opted out", IsInfraDisabled: true},
		{Installed: true, NoActuator: "Opted out", IsInfraDisabled: true, Invalid: "A field is missing"},
		{Installed: true, Incompatible: "Too old"},
		{Installed: true, SyncAwaitedUntil: modelTime().Add(time.Second)},
		{Installed: true, NoActuator: "No actuator", Incompatible: "Too old"},
		{Installed: true, Options: StopOptions{RequiresPossible: true}, IsSurveyed: true, Obstacles: "ClusterUpgrading"},
		{Installed: true, Options: StopOptions{RequiresPossible: true}},
		{Installed: true, ObservationError: &ObservationError{Class: actuator.Throttled, Message: "Slow down"}},
	} {
		for _, record := range hibernationRecords() {
			for _, want := range []hivev1.PowerState{"", hivev1.PowerStateRunning, hivev1.PowerStateHibernating} {
				o := early
				if record != nil && record.Drain != nil {
					o.Options.DrainBudget = time.Minute
				}
				o.Now, o.Record, o.DesiredPowerState, o.RequestedBy = modelTime(), record, want, "somebody"
				list = append(list, o)
				o.RequestedAt = modelTime()
				list = append(list, o)
			}
		}
	}
	return list
}

// secondsAgo returns a time in whole seconds, like those that the API server stores.
func secondsAgo(d time.Duration) metav1.Time {
	return metav1.NewTime(modelTime().Add(-d).Truncate(time.Second))
}

func hibernationRecords() []*hivev1.HibernationRecord {
	both := []hivev1.RecordedNode{{Name: "n0", UID: "uid-n0", Ready: true}, {Name: "n1", UID: "uid-n1"}}
	hour, spot := secondsAgo(time.Hour), []string{"i-1"}
	return []*hivev1.HibernationRecord{
		nil,
		{SleepStartedAt: secondsAgo(time.Second), Nodes: both},
		{SleepStartedAt: hour},
		{SleepStartedAt: secondsAgo(time.Second), Nodes: both, Drain: &hivev1.DrainRecord{}},
		{SleepStartedAt: hour, Nodes: both, ResumeStartedAt: new(secondsAgo(3 * time.Second))},
		{SleepStartedAt: hour, ResumeStartedAt: new(secondsAgo(20 * time.Minute))},
		{SleepStartedAt: hour, Nodes: both, ResumeStartedAt: new(secondsAgo(3 * time.Second)), ReadyInPartAt: new(secondsAgo(time.Second))},
		{SleepStartedAt: hour, Nodes: both, ResumeStartedAt: new(secondsAgo(3 * time.Second)), BrokenOperators: []string{"etcd"}},
		{SleepStartedAt: hour, Nodes: both, ResumeStartedAt: new(secondsAgo(2 * time.Minute)), ResumedAt: new(secondsAgo(time.Minute))},
		{SleepStartedAt: hour, Nodes: both, ResumeStartedAt: &hour, ResumedAt: new(secondsAgo(50 * time.Minute))},
		{SleepStartedAt: secondsAgo(time.Second), Nodes: both, SpotMachines: spot},
		{SleepStartedAt: hour, Nodes: both, SpotMachines: spot, ResumeStartedAt: new(secondsAgo(3 * time.Second))},
		{SleepStartedAt: hour, Nodes: both, SpotMachines: spot, ResumeStartedAt: new(secondsAgo(20 * time.Minute))},
		{SleepStartedAt: hour, Nodes: both, SpotMachines: spot, ResumeStartedAt: new(secondsAgo(2 * time.Minute)), ResumedAt: new(secondsAgo(time.Minute))},
	}
}

// machineSets are sets of up to two machines. Each pair occurs without roles and with roles.
func machineSets() [][]actuator.Machine {
	list := setsWithoutRoles()
	for _, set := range list {
		ordered := slices.Clone(set)
		for i := range ordered {
			ordered[i].Role = machineRole(i)
		}
		if len(set) == 2 {
			list = append(list, ordered)
		}
	}
	return list
}

func setsWithoutRoles() [][]actuator.Machine {
	list := [][]actuator.Machine{nil}
	states := []actuator.MachineState{actuator.Running, actuator.Stopping, actuator.Stopped, actuator.Starting}
	for i, first := range states {
		for _, second := range states[i:] { // The order of machines does not matter.
			list = append(list, []actuator.Machine{{ID: "i-0", State: first}, {ID: "i-1", Name: "worker", State: second}})
		}
		list = append(list, []actuator.Machine{{ID: "i-0", State: first}, {ID: "i-1", Name: "worker", State: actuator.Running, Spot: true}})
	}
	for _, first := range []actuator.MachineState{actuator.Running, actuator.Stopped} {
		list = append(list, []actuator.Machine{{ID: "i-0", State: first}}) // The spot machine no longer exists.
	}
	return append(list, []actuator.Machine{{ID: "i-0", State: actuator.Stopped}, {ID: "i-1", Name: "worker", State: actuator.Starting, Spot: true}})
}

func apiObservations() []Observed {
	list := []Observed{{APIMessage: "No answer"}, {API: Unreachable, APIMessage: "No answer"}}
	seen := func(name string, before time.Duration) ObservedNode {
		return ObservedNode{RecordedNode: hivev1.RecordedNode{Name: name, UID: "uid-" + name, Ready: true}, LastSeen: modelTime().Add(-before)}
	}
	for _, nodes := range [][]ObservedNode{
		nil,
		{seen("n0", time.Second), seen("n1", time.Second)},
		{seen("n0", 2*time.Hour), seen("n1", time.Second)},
		{seen("n0", time.Second), {RecordedNode: hivev1.RecordedNode{Name: "n1"}, LastSeen: modelTime()}},
	} {
		list = append(list, Observed{API: Reachable, Nodes: nodes}, Observed{API: Reachable, Nodes: nodes, Approvable: []string{"csr-0"}})
	}
	back := []ObservedNode{seen("n0", time.Second), seen("n1", time.Second)}
	for _, operator := range []ObservedOperator{
		{Name: "etcd", LastSeen: modelTime()},
		{Name: "etcd", LastSeen: modelTime().Add(-time.Hour)},
		{Name: "etcd", Problem: "degraded", IsBroken: true, LastSeen: modelTime()},
	} {
		list = append(list, Observed{API: Reachable, Nodes: back, Operators: []ObservedOperator{operator}})
	}
	drained := slices.Clone(back)
	drained[1].Cordon = NodeCordon{IsSet: true, IsOurs: true}
	list = append(list, Observed{API: Reachable, Nodes: drained}, Observed{API: Reachable, Nodes: drained, Pods: WorkerPods{IsRead: true}},
		Observed{API: Reachable, Nodes: drained, Pods: WorkerPods{IsRead: true, Pods: []ObservedPod{{Namespace: "default", Name: "pod", Node: "n1"}}}})
	return append(list, Observed{API: Reachable, Nodes: back, HasReadMachines: true},
		Observed{API: Reachable, Nodes: back, HasReadMachines: true, Replaceable: []ReplaceableMachine{secondOpenShiftMachine()}})
}
