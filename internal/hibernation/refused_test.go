// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func TestRefusedActionsAreReported(t *testing.T) {
	on, off := actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want string
	}{
		"a stop":                             {observedCluster(wantHibernating, openRecord(), on), hivev1.FailedToStopReason},
		"a start":                            {observedCluster("", resumingRecord(time.Second), off), hivev1.FailedToStartMachinesReason},
		"an approval during a resume":        {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")), hivev1.FailedToApproveReason},
		"an approval at the end of a resume": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), hivev1.FailedToApproveReason},
		"an approval in aftercare":           {observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0")), hivev1.FailedToApproveReason},
	} {
		for class, wantClass := range errorClasses() {
			t.Run(name+", "+string(class), func(t *testing.T) {
				want := Decide(row.in)
				got := want.WithRefusal(class, "Refused")
				message := "Refused"
				if class == actuator.Other || class == actuator.NotFound {
					message += want.RefusalNote
				}
				want.Ready, want.RequeueAfter = decision.False(row.want, message), wantClass.RequeueAfter
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestMachinesThatCannotBeStoppedAreTriedLessAndLess(t *testing.T) {
	var waits []time.Duration
	for _, after := range []time.Duration{time.Second, 8 * time.Minute, 72 * time.Hour} {
		o := observedCluster(wantHibernating, openRecord(), actuator.Running)
		o.Now = o.Record.SleepStartedAt.Add(after)
		p := Decide(o).WithRefusal(actuator.Other, "OperationNotPermitted for i-0")
		if !strings.Contains(p.Ready.Message, "i-0; the cluster's other machines are stopped, so that it is down in part") {
			t.Errorf("expected the machine to be named, and that the cluster is down in part, found %q", p.Ready.Message)
		}
		waits = append(waits, p.RequeueAfter)
	}
	if diff := cmp.Diff([]time.Duration{retryInterval, 2 * time.Minute, driftInterval}, waits); diff != "" {
		t.Errorf("intervals (-want +got):\n%s", diff)
	}
}

func TestNoActionCannotBeRefused(t *testing.T) {
	p := Decide(observedCluster(wantHibernating, openRecord(), actuator.Stopped))
	want := p
	want.RequeueAfter = retryInterval
	if diff := cmp.Diff(want, p.WithRefusal(actuator.Other, "Refused")); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
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
