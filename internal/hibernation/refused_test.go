// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// errorClasses are all classes of errors: the reason that tells of them when machines cannot be observed, and the next look.
func errorClasses() map[actuator.ErrorClass]decision {
	return map[actuator.ErrorClass]decision{
		actuator.CredentialsMissing: {Ready: hivev1.CredentialsMissingReason, After: userRetryInterval},
		actuator.CredentialsInvalid: {Ready: hivev1.CredentialsInvalidReason, After: userRetryInterval},
		actuator.PermissionDenied:   {Ready: hivev1.PermissionDeniedReason, After: userRetryInterval},
		actuator.Unreachable:        {Ready: hivev1.CloudUnreachableReason, After: maxCloudInterval},
		actuator.Throttled:          {Ready: hivev1.CloudThrottledReason, After: maxCloudInterval},
		actuator.NoCapacity:         {Ready: hivev1.CloudErrorReason, After: maxCloudInterval},
		actuator.WrongState:         {Ready: hivev1.CloudErrorReason, After: minCloudInterval},
		actuator.NotFound:           {Ready: hivev1.CloudErrorReason, After: retryInterval},
		actuator.Other:              {Ready: hivev1.CloudErrorReason, After: retryInterval},
		"a class of tomorrow":       {Ready: hivev1.CloudErrorReason, After: retryInterval},
	}
}

func TestObservationErrorsAreReported(t *testing.T) {
	for class, want := range errorClasses() {
		t.Run(string(class), func(t *testing.T) {
			p := Decide(observedCluster(wantHibernating, openRecord(), "", func(o *Observed) { o.ObservationError = &ObservationError{class, "The cloud says why"} }))
			told := unknown(want.Ready, "The cloud says why")
			silence := isTrue(hivev1.ClusterAsleepReason, "The cluster is put to sleep and is not dialled")
			wanted := Plan{Rule: "machines not observed", Do: NoAction{}, Hibernating: told, Ready: told, Unreachable: silence, Record: openRecord(), After: want.After}
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
		"a stop":                      {observedCluster(wantHibernating, openRecord(), on), hivev1.FailedToStopReason},
		"a start":                     {observedCluster("", resumingRecord(time.Second), off), hivev1.FailedToStartMachinesReason},
		"an approval while it wakes":  {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(staleNode("n0")), withRequests("csr-0")), hivev1.FailedToApproveReason},
		"an approval when it is back": {observedCluster("", resumingRecord(time.Minute), on, apiWithNodes(readyNode("n0"), readyNode("n1")), withRequests("csr-0")), hivev1.FailedToApproveReason},
		"an approval in aftercare":    {observedCluster("", resumedRecord(time.Minute), on, apiWithNodes(), withRequests("csr-0")), hivev1.FailedToApproveReason},
	} {
		for class, wantClass := range errorClasses() {
			t.Run(name+", "+string(class), func(t *testing.T) {
				want := Decide(row.in)
				got := want.Failed(ObservationError{class, "Refused"})
				want.Ready, want.After = isFalse(row.want, "Refused"), wantClass.After
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestNoActionCannotBeRefused(t *testing.T) {
	p := Decide(observedCluster(wantHibernating, openRecord(), actuator.Stopped))
	want := p
	want.After = retryInterval
	if diff := cmp.Diff(want, p.Failed(ObservationError{actuator.Other, "Refused"})); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestDisplayedPowerState(t *testing.T) {
	for name, row := range map[string]struct {
		in   Condition
		want string
	}{
		"a sleep":      {isTrue(hivev1.HibernatingHibernationReason, "x"), "Hibernating"},
		"a transition": {isTrue(hivev1.ResumingHibernationReason, "x"), "Resuming"},
		"a run":        {isFalse(hivev1.RunningHibernationReason, "x"), "Running"},
		"no support":   {isFalse(hivev1.UnsupportedHibernationReason, "x"), "Unsupported"},
		"a secret":     {unknown(hivev1.CredentialsMissingReason, "x"), "Unknown"},
		"a status that is not known, under a known reason": {Condition{metav1.ConditionUnknown, hivev1.RunningHibernationReason, "x"}, "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DisplayedPowerState(row.in); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
