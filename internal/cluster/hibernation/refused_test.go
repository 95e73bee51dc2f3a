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
)

// errorClasses returns the reason and the requeue interval for each error class of a failed observation.
func errorClasses() map[actuator.ErrorClass]expectedPlan {
	return map[actuator.ErrorClass]expectedPlan{
		actuator.CredentialsMissing: {Ready: hivev1.CredentialsMissingReason, RequeueAfter: maxCloudInterval},
		actuator.CredentialsInvalid: {Ready: hivev1.CredentialsInvalidReason, RequeueAfter: retryInterval},
		actuator.PermissionDenied:   {Ready: hivev1.PermissionDeniedReason, RequeueAfter: userRetryInterval},
		actuator.Unreachable:        {Ready: hivev1.CloudUnreachableReason, RequeueAfter: maxCloudInterval},
		actuator.Throttled:          {Ready: hivev1.CloudThrottledReason, RequeueAfter: maxCloudInterval},
		actuator.NoCapacity:         {Ready: hivev1.CloudErrorReason, RequeueAfter: maxCloudInterval},
		actuator.WrongState:         {Ready: hivev1.CloudErrorReason, RequeueAfter: maxCloudInterval},
		actuator.NotFound:           {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
		actuator.Other:              {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
		"unknown class":             {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
	}
}

func TestObservationErrorsAreReported(t *testing.T) {
	for class, want := range errorClasses() {
		t.Run(string(class), func(t *testing.T) {
			p := Decide(observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.ObservationError = &ObservationError{class, "The reason of the cloud"} }))
			unknown := decision.Unknown(want.Ready, "The reason of the cloud")
			asleep := decision.True(hivev1.ClusterAsleepReason, "The cluster hibernates or is being stopped; Torpor does not connect to it")
			wanted := Plan{
				Rule: "machines not observed", Do: NoAction{}, Hibernating: unknown, Ready: unknown, Unreachable: asleep,
				Record: openRecord(), RequeueAfter: want.RequeueAfter,
			}
			if diff := cmp.Diff(wanted, p); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusedApprovalsAreReported(t *testing.T) {
	p := Decide(observedCluster("", resumingRecord(time.Minute), actuator.Running, apiWithNodes(staleNode("n0")), func(o *Observed) { o.ApprovalError = "Refused" }))
	if p.Ready != decision.False(hivev1.FailedToApproveReason, "Refused") || p.ProbeInterval != maxCloudInterval {
		t.Errorf("found %+v and a probe after %s, want the refusal and %s", p.Ready, p.ProbeInterval, maxCloudInterval)
	}
}

func TestRefusedMachinesAreTriedLessAndLess(t *testing.T) {
	for name, row := range map[string]struct {
		class actuator.ErrorClass
		in    func(since time.Duration) Observed
		want  []time.Duration
	}{
		"permanently refused stop is retried at growing intervals": {actuator.Other, func(since time.Duration) Observed {
			o := observedCluster(wantHibernating, openRecord(), actuator.Running)
			o.Record.SleepStartedAt = metav1.NewTime(o.Now.Add(-since))
			return o
		}, []time.Duration{retryInterval, 2 * time.Minute, driftInterval}},
		"stop refused because of the machine's state is retried at growing intervals": {actuator.WrongState, func(since time.Duration) Observed {
			o := observedCluster(wantHibernating, openRecord(), actuator.Running)
			o.Record.SleepStartedAt = metav1.NewTime(o.Now.Add(-since))
			return o
		}, []time.Duration{minCloudInterval, 2 * time.Minute, driftInterval}},
		"start refused because of the machine's state is retried at growing intervals": {actuator.WrongState, func(since time.Duration) Observed {
			return observedCluster("", resumingRecord(since.Truncate(time.Second)), actuator.Stopped)
		}, []time.Duration{minCloudInterval, 2 * time.Minute, driftInterval}},
		"start refused for lack of capacity is retried at growing intervals": {actuator.NoCapacity, func(since time.Duration) Observed {
			return observedCluster("", resumingRecord(since.Truncate(time.Second)), actuator.Stopped)
		}, []time.Duration{maxCloudInterval, maxCapacityRest, maxCapacityRest}},
		"throttled start is retried at a constant interval": {actuator.Throttled, func(since time.Duration) Observed {
			return observedCluster("", resumingRecord(since), actuator.Stopped)
		}, []time.Duration{maxCloudInterval, maxCloudInterval, maxCloudInterval}},
	} {
		t.Run(name, func(t *testing.T) {
			var rests []time.Duration
			for _, since := range []time.Duration{time.Second, 8 * time.Minute, 72 * time.Hour} {
				o := row.in(since)
				o.Refusal = &OrderRefusal{ObservationError{row.class, "No"}, []string{"i-0"}}
				rests = append(rests, Decide(o).RetryAfter.Round(time.Second))
			}
			if diff := cmp.Diff(row.want, rests); diff != "" {
				t.Errorf("rests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestARefusedStopIsExplainedOnceItLasts checks clusters after a refused stop of a machine that still runs.
func TestARefusedStopIsExplainedOnceItLasts(t *testing.T) {
	const inPart, whole = "the cluster is partly down", "no machine is stopped until all can be stopped"
	for name, row := range map[string]struct {
		class       actuator.ErrorClass
		since       time.Duration
		other       actuator.MachineState
		want        string
		wantStalled bool
	}{
		"wrong machine state is not explained in the first minute":                             {actuator.WrongState, time.Minute, actuator.Stopped, "", false},
		"wrong machine state is not explained before the stop has stalled":                     {actuator.WrongState, stalledAfter, actuator.Stopped, "", false},
		"wrong machine state is explained once the stop has stalled":                           {actuator.WrongState, 3 * time.Hour, actuator.Stopped, inPart, true},
		"wrong machine state is explained once the stop has stalled with all machines running": {actuator.WrongState, 3 * time.Hour, actuator.Running, whole, true},
		"permanent refusal is explained at once":                                               {actuator.Other, time.Minute, actuator.Stopped, inPart, true},
		"missing machine is explained at once":                                                 {actuator.NotFound, time.Minute, actuator.Stopped, inPart, true},
		"throttling is not explained as a problem of the machine":                              {actuator.Throttled, 3 * time.Hour, actuator.Stopped, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observedCluster(wantHibernating, openRecord(), row.other, secondMachine(actuator.Running))
			o.Record.SleepStartedAt = metav1.NewTime(o.Now.Add(-row.since))
			o.Refusal = &OrderRefusal{ObservationError{row.class, "The reason of the cloud"}, []string{o.Machines[1].ID}}
			p := Decide(o)
			note := strings.TrimPrefix(p.Ready.Message, "The reason of the cloud")
			if p.Ready.Reason != hivev1.FailedToStopReason || (note != "") != (row.want != "") || !strings.Contains(note, row.want) {
				t.Errorf("expected reason %s and %q, found %s: %q", hivev1.FailedToStopReason, row.want, p.Ready.Reason, p.Ready.Message)
			}
			if isStalled := p.Stalled.Status == metav1.ConditionTrue; isStalled != row.wantStalled {
				t.Errorf("expected the hibernation to be stalled: %t, found %+v", row.wantStalled, p.Stalled)
			}
		})
	}
}

func TestDisplayedPowerState(t *testing.T) {
	for name, row := range map[string]struct {
		in   decision.Condition
		want string
	}{
		"complete hibernation is shown as Hibernating":                                 {decision.True(hivev1.HibernatingHibernationReason, "x"), "Hibernating"},
		"resume is shown as Resuming":                                                  {decision.True(hivev1.ResumingHibernationReason, "x"), "Resuming"},
		"running cluster is shown as Running":                                          {decision.False(hivev1.RunningHibernationReason, "x"), "Running"},
		"unsupported hibernation is shown as Unsupported":                              {decision.False(hivev1.UnsupportedHibernationReason, "x"), "Unsupported"},
		"missing Secret is shown as Unknown":                                           {decision.Unknown(hivev1.CredentialsMissingReason, "x"), "Unknown"},
		"condition with the status Unknown and the reason Running is shown as Unknown": {decision.Unknown(hivev1.RunningHibernationReason, "x"), "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DisplayedPowerState(row.in); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
