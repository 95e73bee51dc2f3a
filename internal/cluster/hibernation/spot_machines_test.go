// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// withSpot adds the second machine of observedCluster, a spot machine, to a record.
func withSpot(r *hivev1.HibernationRecord) *hivev1.HibernationRecord {
	r.SpotMachines = []string{"i-1"}
	return r
}

func secondSpotMachine(s actuator.MachineState) func(*Observed) {
	return func(o *Observed) { o.Machines[1].State, o.Machines[1].Spot = s, true }
}

// withoutSecondMachine is a cluster without its second machine.
func withoutSecondMachine(o *Observed) { o.Machines = o.Machines[:1] }

func secondOpenShiftMachine() ReplaceableMachine {
	return ReplaceableMachine{ID: "i-1", Name: "worker", UID: "uid-worker"}
}

func apiWithMachines(machines ...ReplaceableMachine) func(*Observed) {
	return func(o *Observed) { o.API, o.HasReadMachines, o.Replaceable = Reachable, true, machines }
}

func TestSpotMachinesAreTerminatedLastAndReplaced(t *testing.T) {
	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	both := apiWithNodes(readyNode("n0"), readyNode("n1"))
	stopping, starting, waitsForNodes := hivev1.StoppingHibernationReason, hivev1.ResumingHibernationReason, hivev1.WaitingForNodesReason
	terminate := expectedPlan{"terminate spot machines", TerminateMachines{[]string{"i-1"}}, stopping, hivev1.TerminatingSpotMachinesReason, machineWaitInterval}
	waitStop := expectedPlan{"machines are stopping", NoAction{}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	replace := ReplaceMachines{[]ReplaceableMachine{secondOpenShiftMachine()}}
	waitNodes := func(do Action) expectedPlan {
		return expectedPlan{"resuming, nodes have not reported", do, starting, waitsForNodes, minProbeInterval}
	}
	runs := expectedPlan{"running", NoAction{}, hivev1.RunningHibernationReason, hivev1.RunningHibernationReason, minAftercareInterval}
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"other machines are stopped first, if the account may also terminate the spot machine": {
			observedCluster(wantHibernating, withSpot(openRecord()), on, secondSpotMachine(on)),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0"}, TerminatedLater: []string{"i-1"}}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval},
		},
		"spot machine that is not in the record is ordered to stop, and not terminated": {
			observedCluster(wantHibernating, openRecord(), on, secondSpotMachine(on)),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval},
		},
		"machine that is not a spot machine is never terminated, even if it is in the record": {
			observedCluster(wantHibernating, withSpot(openRecord()), off, secondMachine(on)),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-1"}}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval},
		},
		"spot machine is not terminated before the other machines are stopped": {observedCluster(wantHibernating, withSpot(openRecord()), goingOff, secondSpotMachine(on)), waitStop},
		"spot machine is terminated once the other machines are stopped":       {observedCluster(wantHibernating, withSpot(openRecord()), off, secondSpotMachine(on)), terminate},
		"starting spot machine is terminated":                                  {observedCluster(wantHibernating, withSpot(openRecord()), off, secondSpotMachine(goingOn)), terminate},
		"spot machine that is being terminated is awaited": {
			observedCluster(wantHibernating, withSpot(openRecord()), off, secondSpotMachine(goingOff)),
			expectedPlan{"machines are stopping", NoAction{}, stopping, hivev1.TerminatingSpotMachinesReason, machineWaitInterval},
		},
		"cluster hibernates once its spot machine is terminated": {
			observedCluster(wantHibernating, withSpot(openRecord()), off, withoutSecondMachine),
			expectedPlan{"hibernating", NoAction{}, hivev1.HibernatingHibernationReason, hivev1.HibernatingHibernationReason, closeLookWindow},
		},
		"spot machine is not terminated if the cloud lists no other machine": {
			observedCluster(wantHibernating, withSpot(openRecord()), on, secondSpotMachine(on), func(o *Observed) { o.Machines = o.Machines[1:] }), waitStop,
		},
		"spot machine that appears during a hibernation is added to the record if the cluster answers": {
			observedCluster(wantHibernating, openRecord(), goingOff, secondSpotMachine(on), both, apiWithMachines(secondOpenShiftMachine())),
			expectedPlan{"record spot machines", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately},
		},
		"other machines are started again for a spot machine that appears in an unreachable cluster": {
			observedCluster(wantHibernating, openRecord(), off, secondSpotMachine(on), func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"start machines again", StartMachines{[]string{"i-0"}}, stopping, hivev1.StartingMachinesReason, minCloudInterval},
		},
		"cluster with a spot machine that is not recorded waits for the other machines to start": {
			observedCluster(wantHibernating, openRecord(), goingOn, secondSpotMachine(on), func(o *Observed) { o.API = Unreachable }),
			expectedPlan{"start machines again", NoAction{}, stopping, hivev1.StartingMachinesReason, minCloudInterval},
		},
		"other machines are started again for a spot machine that the cluster does not replace": {
			observedCluster(wantHibernating, openRecord(), off, secondSpotMachine(on), both, apiWithMachines()),
			expectedPlan{"start machines again", StartMachines{[]string{"i-0"}}, stopping, hivev1.StartingMachinesReason, minCloudInterval},
		},
		"spot machine beyond the limit of the schema is not added to the record": {
			observedCluster(wantHibernating, openRecord(), on, secondSpotMachine(on), both, apiWithMachines(secondOpenShiftMachine()), func(o *Observed) {
				for i := range maxSpotMachines {
					o.Record.SpotMachines = append(o.Record.SpotMachines, fmt.Sprintf("i-%05d", i))
				}
				o.HasReadMachines = false // Machines of terminated machines may still exist.
			}),
			expectedPlan{"stop machines", StopMachines{IDs: []string{"i-0", "i-1"}}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval},
		},
		"cancelled hibernation terminates nothing": {
			observedCluster("", withSpot(openRecord()), off, secondSpotMachine(on)),
			expectedPlan{"record resume start", NoAction{}, starting, hivev1.StartingMachinesReason, immediately},
		},
		"Machine of a terminated spot machine is deleted as soon as the cluster responds": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, both, apiWithMachines(secondOpenShiftMachine())), waitNodes(replace),
		},
		"spot machine that still exists in the cloud is not replaced": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, secondSpotMachine(on), both, apiWithMachines(secondOpenShiftMachine())), runs,
		},
		"only the missing one of two recorded spot machines is replaced": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, secondSpotMachine(on), both, apiWithMachines(secondOpenShiftMachine(), ReplaceableMachine{ID: "i-2", Name: "gone", UID: "uid-gone"}),
				func(o *Observed) { o.Record.SpotMachines = append(o.Record.SpotMachines, "i-2") }),
			waitNodes(ReplaceMachines{[]ReplaceableMachine{{ID: "i-2", Name: "gone", UID: "uid-gone"}}}),
		},
		"Machine that is not in the record is not replaced": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, both, apiWithMachines(ReplaceableMachine{ID: "i-2", Name: "other", UID: "uid"})), runs,
		},
		"Machines that could not be read are awaited": {observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, both), waitNodes(NoAction{})},
		"failed deletion of a Machine is not retried at once": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, both, apiWithMachines(secondOpenShiftMachine()), func(o *Observed) {
				o.ReplacementError, o.IsReplacementResting = "the Machines cannot be deleted", true
			}), waitNodes(NoAction{}),
		},
		"certificate requests are approved before Machines are deleted": {
			observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, both, apiWithMachines(secondOpenShiftMachine()), withRequests("csr-0")),
			waitNodes(ApproveRequests{[]string{"csr-0"}}),
		},
		"Machine that is found within ten minutes after a resume is deleted": {
			observedCluster("", withSpot(resumedRecord(time.Minute)), on, withoutSecondMachine, both, apiWithMachines(secondOpenShiftMachine())),
			expectedPlan{"running in part", replace, hivev1.RunningHibernationReason, hivev1.RunningHibernationReason, minProbeInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			after := p.RequeueAfter
			if p.ProbeInterval > 0 {
				after = min(after, p.ProbeInterval)
			}
			if diff := cmp.Diff(row.want, expectedPlan{p.Rule, p.Do, p.Hibernating.Reason, p.Ready.Reason, after}); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSpotMachinesAreRecorded(t *testing.T) {
	const on = actuator.Running
	many := func(o *Observed) {
		for i := range 2 * maxSpotMachines {
			id := fmt.Sprintf("i-%05d", i)
			o.Machines = append(o.Machines, actuator.Machine{ID: id, State: on, Spot: true})
			o.Replaceable = append(o.Replaceable, ReplaceableMachine{ID: id, Name: id, UID: id})
		}
	}
	for name, row := range map[string]struct {
		in    Observed
		want  []string
		count int
	}{
		"spot machine that the cluster replaces is recorded":        {in: observedCluster(wantHibernating, nil, on, secondSpotMachine(on), apiWithMachines(secondOpenShiftMachine())), want: []string{"i-1"}},
		"spot machine without an OpenShift Machine is not recorded": {in: observedCluster(wantHibernating, nil, on, secondSpotMachine(on), apiWithMachines())},
		"machine that can be stopped is not recorded":               {in: observedCluster(wantHibernating, nil, on, apiWithMachines(secondOpenShiftMachine()))},
		"spot machine of an earlier hibernation is not recorded again if Machines cannot be read": {
			in: observedCluster(wantHibernating, withSpot(resumedRecord(time.Hour)), on, secondSpotMachine(on)),
		},
		"running spot machine of a cancelled resume is not recorded if Machines cannot be read": {
			in: observedCluster(wantHibernating, withSpot(resumingRecord(time.Minute)), on, secondSpotMachine(on)),
		},
		"terminated spot machine stays recorded if the resume is cancelled before its Machine is deleted": {
			in: observedCluster(wantHibernating, withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine), want: []string{"i-1"},
		},
		"terminated machine without an OpenShift Machine is not recorded": {
			in: observedCluster(wantHibernating, withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine, apiWithMachines()),
		},
		"more machines than the schema allows are recorded up to the limit": {in: observedCluster(wantHibernating, nil, on, apiWithMachines(), many), count: maxSpotMachines},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(row.in).Record.SpotMachines
			if row.count == 0 && !slices.Equal(got, row.want) || row.count > 0 && len(got) != row.count {
				t.Errorf("expected %v, or %d machines; found %v", row.want, row.count, got)
			}
		})
	}
}

func TestTerminatedAndReplacedMachinesAreReported(t *testing.T) {
	const on, off = actuator.Running, actuator.Stopped
	left := observedCluster("", withSpot(resumingRecord(partialResumeAfter+time.Second)), on, withoutSecondMachine, apiWithNodes(readyNode("n0")), apiWithMachines(secondOpenShiftMachine()),
		func(o *Observed) { o.ReplacementError = "the Machines cannot be deleted: no" })
	want := decision.True(hivev1.MachinesMissingReason, "Parts of the cluster are missing; OpenShift Machines of terminated spot machines, "+
		"which must be deleted so that new Machines are created: worker; the Machines cannot be deleted: no")
	if diff := cmp.Diff(want, Decide(left).Degraded); diff != "" {
		t.Errorf("degraded (-want +got):\n%s", diff)
	}
	left.Record = withSpot(resumingRecord(time.Minute))
	ready := decision.False(hivev1.WaitingForNodesReason, "Waiting for OpenShift Machines of terminated spot machines, which must be deleted so that new Machines are created: worker; the Machines cannot be deleted: no")
	if diff := cmp.Diff(ready, Decide(left).Ready); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	terminated := TransitionEvents(nil, Decide(observedCluster(wantHibernating, withSpot(openRecord()), off, secondSpotMachine(on))))
	if !slices.ContainsFunc(terminated, func(e decision.Event) bool {
		return e.Reason == hivev1.TerminatingSpotMachinesReason && e.Note == "Terminating spot machines, which the cluster replaces at the resume: i-1"
	}) {
		t.Errorf("expected an event that names the machine, found %+v", terminated)
	}
}

func TestMachineObjectsAreReadOnlyIfNeeded(t *testing.T) {
	const on = actuator.Running
	for name, row := range map[string]struct {
		in   Observed
		want bool
	}{
		"hibernation with a spot machine reads Machines":                                      {observedCluster(wantHibernating, nil, on, secondSpotMachine(on)), true},
		"hibernation without a spot machine does not read Machines":                           {observedCluster(wantHibernating, nil, on), false},
		"running cluster does not read Machines":                                              {observedCluster("", nil, on, secondSpotMachine(on)), false},
		"spot machine that is not in the record requires reading Machines":                    {observedCluster(wantHibernating, openRecord(), on, secondSpotMachine(on)), true},
		"spot machine that is in the saved record does not require reading Machines":          {observedCluster(wantHibernating, withSpot(openRecord()), on, secondSpotMachine(on)), false},
		"resume after a termination reads Machines":                                           {observedCluster("", withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine), true},
		"resume of a cluster whose recorded spot machine still exists does not read Machines": {observedCluster("", withSpot(resumingRecord(time.Minute)), on, secondSpotMachine(on)), false},
		"hibernation that cancels a resume reads Machines":                                    {observedCluster(wantHibernating, withSpot(resumingRecord(time.Minute)), on, withoutSecondMachine), true},
		"cluster that resumed long ago does not read Machines":                                {observedCluster("", withSpot(resumedRecord(time.Hour)), on, withoutSecondMachine), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NeedsMachines(row.in); got != row.want {
				t.Errorf("expected %t, found %t", row.want, got)
			}
		})
	}
}
