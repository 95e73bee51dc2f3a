// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// workersFirst makes the first machine part of the control plane, and orders the second one to stop before it.
func workersFirst(o *Observed) {
	o.Options.WorkersFirst = true
	o.Machines[0].Role, o.Machines[1].Role = actuator.ControlPlaneRole, actuator.WorkerRole
}

// beganBefore is the record of a hibernation that began the given time ago.
func beganBefore(d time.Duration) *hivev1.HibernationRecord {
	r := openRecord()
	r.SleepStartedAt = secondsAgo(d)
	return r
}

func TestWorkersStopFirstAndStartLast(t *testing.T) {
	const on, off, goingOff, goingOn = actuator.Running, actuator.Stopped, actuator.Stopping, actuator.Starting
	const late = workersStopWindow + time.Second
	stopping, starting := hivev1.StoppingHibernationReason, hivev1.ResumingHibernationReason
	both, one := apiWithNodes(readyNode("n0"), readyNode("n1")), apiWithNodes(readyNode("n0"), staleNode("n1"))
	stop := func(do StopMachines, ready string) expectedPlan {
		return expectedPlan{"stop machines", do, stopping, ready, machineWaitInterval}
	}
	start := func(do Action, after time.Duration) expectedPlan {
		return expectedPlan{"machines are starting", do, starting, hivev1.StartingMachinesReason, after}
	}
	awaitStop := expectedPlan{"machines are stopping", NoAction{}, stopping, hivev1.StoppingMachinesReason, machineWaitInterval}
	worker, controlPlane := []string{"i-1"}, []string{"i-0"}
	all := []string{"i-0", "i-1"}
	holdsCapacity := func(o *Observed) { o.Machines[1].HoldsCapacity = true }
	silent := func(o *Observed) { o.API, o.APIMessage = Unreachable, "no answer in time" }
	refusedWorker := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.Other, "Stop protection"}, []string{"i-1"}}
	}
	refusedControlPlane := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.NoCapacity, "No room"}, []string{"i-0"}}
	}
	unknownRoles := func(o *Observed) { o.Options.WorkersFirst = true }
	onlyControlPlaneIsKnown := func(o *Observed) { o.Machines[1].Role = actuator.UnknownRole }
	for name, row := range map[string]struct {
		in   Observed
		want expectedPlan
	}{
		"worker is stopped first if the account may also stop the control plane": {
			observedCluster(wantHibernating, openRecord(), on, workersFirst), stop(StopMachines{IDs: worker, StoppedLater: controlPlane}, hivev1.StoppingMachinesReason),
		},
		"nodes are recorded before the worker is stopped": {
			observedCluster(wantHibernating, nil, on, workersFirst, both), expectedPlan{"record nodes", NoAction{}, stopping, hivev1.StoppingMachinesReason, immediately},
		},
		"control plane waits for a stopping worker": {observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOff), workersFirst), awaitStop},
		"control plane waits for a worker that is still starting": {
			observedCluster(wantHibernating, openRecord(), on, secondMachine(goingOn), workersFirst), awaitStop,
		},
		"control plane is stopped once the worker is off": {
			observedCluster(wantHibernating, openRecord(), on, secondMachine(off), workersFirst), stop(StopMachines{IDs: controlPlane}, hivev1.StoppingMachinesReason),
		},
		"worker that is off and billed does not count as off": {
			observedCluster(wantHibernating, openRecord(), on, secondMachine(off), holdsCapacity, workersFirst),
			stop(StopMachines{IDs: worker, StoppedLater: controlPlane}, hivev1.StoppingMachinesReason),
		},
		"worker that does not stop delays the control plane by ten minutes": {
			observedCluster(wantHibernating, beganBefore(late), on, secondMachine(goingOff), workersFirst), stop(StopMachines{IDs: controlPlane}, hivev1.WaitingForMachinesToStopReason),
		},
		"worker that the cloud refuses to stop keeps the control plane on": {
			observedCluster(wantHibernating, beganBefore(late), on, refusedWorker, workersFirst),
			expectedPlan{"stop machines", StopMachines{IDs: worker, StoppedLater: controlPlane}, stopping, hivev1.FailedToStopReason, refusalRest(actuator.Other, secondsAgo(late).Time, modelTime())},
		},
		"spot machine that is terminated last delays no other machine": {
			observedCluster(wantHibernating, withSpot(openRecord()), on, secondSpotMachine(on), workersFirst),
			stop(StopMachines{IDs: controlPlane, TerminatedLater: worker}, hivev1.StoppingMachinesReason),
		},
		"machine with an unknown role counts as a worker": {
			observedCluster(wantHibernating, openRecord(), on, workersFirst, onlyControlPlaneIsKnown), stop(StopMachines{IDs: worker, StoppedLater: controlPlane}, hivev1.StoppingMachinesReason),
		},
		"all machines are stopped together if no control-plane machine is known": {
			observedCluster(wantHibernating, openRecord(), on, unknownRoles), stop(StopMachines{IDs: all}, hivev1.StoppingMachinesReason),
		},
		"worker started by a user during the hibernation is stopped": {
			observedCluster(wantHibernating, beganBefore(time.Hour), off, secondMachine(on), workersFirst), stop(StopMachines{IDs: worker}, hivev1.WaitingForMachinesToStopReason),
		},

		"control plane is started first": {observedCluster("", resumingRecord(time.Second), off, workersFirst), start(StartMachines{controlPlane}, machineWaitInterval)},
		"worker waits for a starting control plane": {
			observedCluster("", resumingRecord(time.Second), goingOn, secondMachine(off), workersFirst), start(NoAction{}, machineWaitInterval),
		},
		"worker waits for the API server": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), silent, workersFirst), start(NoAction{}, minProbeInterval),
		},
		"worker is started once the API server responds": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), one, workersFirst), start(StartMachines{worker}, minProbeInterval),
		},
		"control-plane nodes get their certificates before workers start": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), one, withRequests("csr-0"), workersFirst), start(ApproveRequests{[]string{"csr-0"}}, minProbeInterval),
		},
		"worker waits for the API server for at most five minutes": {
			observedCluster("", resumingRecord(controlPlaneStartWindow), on, secondMachine(off), silent, workersFirst),
			expectedPlan{"machines are starting", StartMachines{worker}, starting, hivev1.WaitingForMachinesReason, maxCloudInterval},
		},
		"overdue start of a worker has precedence over certificate approvals": {
			observedCluster("", resumingRecord(controlPlaneStartWindow), on, secondMachine(off), one, withRequests("csr-0"), workersFirst),
			expectedPlan{"machines are starting", StartMachines{worker}, starting, hivev1.WaitingForMachinesReason, maxCloudInterval},
		},
		"control-plane machine without capacity does not delay workers": {
			observedCluster("", resumingRecord(time.Second), off, refusedControlPlane, one, workersFirst, func(o *Observed) {
				o.Machines = append(o.Machines, actuator.Machine{ID: "i-2", State: on, Role: actuator.ControlPlaneRole})
			}),
			expectedPlan{"machines are starting", StartMachines{all}, starting, hivev1.FailedToStartMachinesReason, minProbeInterval},
		},
		"all machines are started at once if no control-plane machine is known": {
			observedCluster("", resumingRecord(time.Second), off, unknownRoles), start(StartMachines{all}, machineWaitInterval),
		},
		"worker that stops after the resume is started without waiting for the API server": {
			observedCluster("", resumedRecord(time.Hour), on, secondMachine(off), silent, workersFirst),
			expectedPlan{"running, API server not reachable", StartMachines{worker}, hivev1.RunningHibernationReason, hivev1.APIUnreachableReason, retryInterval},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectPlan(t, row.want, row.in)
		})
	}
}

func TestReportsDescribeTheOrderOfMachines(t *testing.T) {
	const on, off, goingOff = actuator.Running, actuator.Stopped, actuator.Stopping
	silent := func(o *Observed) {
		o.API, o.APIMessage, o.IsAPIProblemLasting = Unreachable, "the server refuses", true
	}
	withBadOrder := func(o *Observed) {
		o.Options = ReadStopOptions(map[string]string{hivev1.StopOrderAnnotation: "masters-first"})
	}
	refusedWorker := func(o *Observed) {
		o.Refusal = &OrderRefusal{ObservationError{actuator.Throttled, "Slow down"}, []string{"i-1"}}
	}
	const ignored = `; the annotation torpor.dev/stop-order is ignored: expected workers-first, found "masters-first"`
	const unordered = "; all machines stop or start together, although torpor.dev/stop-order requests an order: no labels or name identify a machine of the control plane"
	for name, row := range map[string]struct {
		in   Observed
		want string
	}{
		"order is reported before the hibernation is recorded": {
			observedCluster(wantHibernating, nil, on, apiWithNodes(readyNode("n0")), workersFirst),
			"Stopping the cluster's 2 machines; workers stop first, and the control plane when all workers are off or ten minutes have passed",
		},
		"order is reported while workers are stopping": {
			observedCluster(wantHibernating, openRecord(), on, workersFirst),
			"Stopping the cluster's 2 machines; workers stop first, and the control plane when all workers are off or ten minutes have passed",
		},
		"stopped workers are reported": {
			observedCluster(wantHibernating, openRecord(), on, secondMachine(off), workersFirst), "Stopping the cluster's 2 machines; the workers are off",
		},
		"control plane that stops after the time limit of its workers is reported": {
			observedCluster(wantHibernating, beganBefore(workersStopWindow), on, secondMachine(goingOff), workersFirst),
			"Waiting for i-0, worker (i-1) to stop; the control plane is stopped as well, although workers have not stopped within ten minutes: worker (i-1)",
		},
		"control plane that is left on for a refused worker is reported": {
			observedCluster(wantHibernating, beganBefore(time.Hour), on, refusedWorker, workersFirst), "Slow down; the control plane is left on, because the cloud refuses to stop workers",
		},
		"stop without known roles reports that all machines stop at once": {
			observedCluster(wantHibernating, openRecord(), on, func(o *Observed) { o.Options.WorkersFirst = true }), "Stopping the cluster's 2 machines" + unordered,
		},
		"malformed order is reported while machines stop": {observedCluster(wantHibernating, openRecord(), on, withBadOrder), "Stopping the cluster's 2 machines" + ignored},
		"malformed order is reported while the cluster runs": {
			observedCluster("", nil, on, apiWithNodes(), withBadOrder), "The cluster runs and its API server answers" + ignored,
		},
		"malformed order is reported while the cluster hibernates": {observedCluster(wantHibernating, openRecord(), off, withBadOrder), "The cluster hibernates" + ignored},
		"order is reported before the resume is recorded": {
			observedCluster("", openRecord(), off, workersFirst),
			"Starting the cluster's 2 machines; the control plane starts first, and the workers when the API server answers or five minutes have passed",
		},
		"workers that wait for a refusing API server are reported": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), silent, workersFirst),
			"Starting the cluster's 2 machines; the control plane starts first, and the workers when the API server answers or five minutes have passed: the server refuses",
		},
		"workers that start after the control plane has responded are reported": {
			observedCluster("", resumingRecord(time.Second), on, secondMachine(off), apiWithNodes(readyNode("n0")), workersFirst),
			"Starting the cluster's 2 machines; the API server answers",
		},
		"workers that start after the time limit of the control plane are reported": {
			observedCluster("", resumingRecord(controlPlaneStartWindow), on, secondMachine(off), silent, workersFirst),
			"Waiting for worker (i-1) to start; workers are started as well, although the API server has not answered within five minutes: the server refuses",
		},
		"start without known roles reports that all machines start at once": {
			observedCluster("", resumingRecord(time.Second), off, func(o *Observed) { o.Options.WorkersFirst = true }), "Starting the cluster's 2 machines" + unordered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(row.in).Ready.Message; got != row.want {
				t.Errorf("found\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

func TestInvalidOptionsAreReportedOnce(t *testing.T) {
	options := ReadStopOptions(map[string]string{hivev1.StopOrderAnnotation: strings.Repeat("x", 100)})
	if options.WorkersFirst || len(options.Ignored) > 200 {
		t.Errorf("found %+v, want only a short note", options)
	}
	plan := Decide(observedCluster("", nil, actuator.Running, apiWithNodes(), func(o *Observed) { o.Options = options }))
	first := OptionEvents(nil, options, plan)
	want := []decision.Event{{Warning: true, Reason: stoprecord.EventAnnotationIgnored, Action: powerAction, Note: options.Ignored}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	reported := []metav1.Condition{{Type: hivev1.ClusterReadyCondition, Message: plan.Ready.Message}}
	if again := OptionEvents(reported, options, plan); len(again) != 0 {
		t.Errorf("expected no event for a note that was reported before, found %v", again)
	}
	if none := OptionEvents(nil, ReadStopOptions(nil), plan); len(none) != 0 {
		t.Errorf("expected no event without options, found %v", none)
	}
}
