// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// errorClasses returns for every class of errors the reason when machines cannot be observed, and the next look.
func errorClasses() map[actuator.ErrorClass]expectedPlan {
	return map[actuator.ErrorClass]expectedPlan{
		actuator.CredentialsMissing: {Ready: hivev1.CredentialsMissingReason, RequeueAfter: maxCloudInterval},
		actuator.CredentialsInvalid: {Ready: hivev1.CredentialsInvalidReason, RequeueAfter: retryInterval},
		actuator.PermissionDenied:   {Ready: hivev1.PermissionDeniedReason, RequeueAfter: userRetryInterval},
		actuator.Unreachable:        {Ready: hivev1.CloudUnreachableReason, RequeueAfter: maxCloudInterval},
		actuator.Throttled:          {Ready: hivev1.CloudThrottledReason, RequeueAfter: maxCloudInterval},
		actuator.NoCapacity:         {Ready: hivev1.CloudErrorReason, RequeueAfter: maxCloudInterval},
		actuator.WrongState:         {Ready: hivev1.CloudErrorReason, RequeueAfter: minCloudInterval},
		actuator.NotFound:           {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
		actuator.Other:              {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
		"a class of tomorrow":       {Ready: hivev1.CloudErrorReason, RequeueAfter: retryInterval},
	}
}

func TestObservationErrorsAreReported(t *testing.T) {
	for class, want := range errorClasses() {
		t.Run(string(class), func(t *testing.T) {
			p := Decide(observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.ObservationError = &ObservationError{class, "The cloud says why"} }))
			unknown := decision.Unknown(want.Ready, "The cloud says why")
			asleep := decision.True(hivev1.ClusterAsleepReason, "The cluster is put to sleep and is not dialled")
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
		t.Errorf("found %+v and a look after %s, want the refusal and %s", p.Ready, p.ProbeInterval, maxCloudInterval)
	}
}

func TestRefusedMachinesAreTriedLessAndLess(t *testing.T) {
	for name, row := range map[string]struct {
		class actuator.ErrorClass
		in    func(since time.Duration) Observed
		want  []time.Duration
	}{
		"a stop that is refused for good": {actuator.Other, func(since time.Duration) Observed {
			o := observedCluster(wantHibernating, openRecord(), actuator.Running)
			o.Record.SleepStartedAt = metav1.NewTime(o.Now.Add(-since))
			return o
		}, []time.Duration{retryInterval, 2 * time.Minute, driftInterval}},
		"a start without room": {actuator.NoCapacity, func(since time.Duration) Observed {
			return observedCluster("", resumingRecord(since.Truncate(time.Second)), actuator.Stopped)
		}, []time.Duration{maxCloudInterval, maxCapacityRest, maxCapacityRest}},
		"a start that is throttled": {actuator.Throttled, func(since time.Duration) Observed {
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

func TestDisplayedPowerState(t *testing.T) {
	for name, row := range map[string]struct {
		in   decision.Condition
		want string
	}{
		"a hibernation":    {decision.True(hivev1.HibernatingHibernationReason, "x"), "Hibernating"},
		"a transition":     {decision.True(hivev1.ResumingHibernationReason, "x"), "Resuming"},
		"a run":            {decision.False(hivev1.RunningHibernationReason, "x"), "Running"},
		"no support":       {decision.False(hivev1.UnsupportedHibernationReason, "x"), "Unsupported"},
		"a missing Secret": {decision.Unknown(hivev1.CredentialsMissingReason, "x"), "Unknown"},
		"a status that is not known, under a known reason": {decision.Unknown(hivev1.RunningHibernationReason, "x"), "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DisplayedPowerState(row.in); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
