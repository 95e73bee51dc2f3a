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

// classes are all classes of errors: the reason that tells of them when machines cannot be observed, and the next look.
func classes() map[actuator.Class]decision {
	return map[actuator.Class]decision{
		actuator.CredentialsMissing: {Ready: hivev1.CredentialsMissingReason, After: userInterval},
		actuator.CredentialsInvalid: {Ready: hivev1.CredentialsInvalidReason, After: userInterval},
		actuator.PermissionDenied:   {Ready: hivev1.PermissionDeniedReason, After: userInterval},
		actuator.Unreachable:        {Ready: hivev1.CloudUnreachableReason, After: maxPace},
		actuator.Throttled:          {Ready: hivev1.CloudThrottledReason, After: maxPace},
		actuator.NoCapacity:         {Ready: hivev1.CloudErrorReason, After: maxPace},
		actuator.WrongState:         {Ready: hivev1.CloudErrorReason, After: minPace},
		actuator.NotFound:           {Ready: hivev1.CloudErrorReason, After: retryInterval},
		actuator.Other:              {Ready: hivev1.CloudErrorReason, After: retryInterval},
		"a class of tomorrow":       {Ready: hivev1.CloudErrorReason, After: retryInterval},
	}
}

func TestTroubleIsTold(t *testing.T) {
	for class, want := range classes() {
		t.Run(string(class), func(t *testing.T) {
			p := Decide(with(sleeping, open(), "", func(o *Observed) { o.Trouble = &Trouble{class, "The cloud says why"} }))
			told := unknown(want.Ready, "The cloud says why")
			silence := isTrue(hivev1.ClusterAsleepReason, "The cluster is put to sleep and is not dialled")
			wanted := Plan{Rule: "machines not observed", Do: Nothing{}, Hibernating: told, Ready: told, Unreachable: silence, Record: open(), After: want.After}
			if diff := cmp.Diff(wanted, p); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARefusedEffectIsTold(t *testing.T) {
	on, off := actuator.Running, actuator.Stopped
	for name, row := range map[string]struct {
		in   Observed
		want string
	}{
		"a stop":                      {with(sleeping, open(), on), hivev1.FailedToStopReason},
		"a start":                     {with("", wakingSince(time.Second), off), hivev1.FailedToStartMachinesReason},
		"an approval while it wakes":  {with("", wakingSince(time.Minute), on, answering(stale("n0")), asking("csr-0")), hivev1.FailedToApproveReason},
		"an approval when it is back": {with("", wakingSince(time.Minute), on, answering(node("n0"), node("n1")), asking("csr-0")), hivev1.FailedToApproveReason},
		"an approval in aftercare":    {with("", finished(time.Minute), on, answering(), asking("csr-0")), hivev1.FailedToApproveReason},
	} {
		for class, wantClass := range classes() {
			t.Run(name+", "+string(class), func(t *testing.T) {
				want := Decide(row.in)
				got := want.Failed(Trouble{class, "Refused"})
				want.Ready, want.After = isFalse(row.want, "Refused"), wantClass.After
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestNoEffectCannotBeRefused(t *testing.T) {
	p := Decide(with(sleeping, open(), actuator.Stopped))
	want := p
	want.After = retryInterval
	if diff := cmp.Diff(want, p.Failed(Trouble{actuator.Other, "Refused"})); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPowerState(t *testing.T) {
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
			if got := PowerState(row.in); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}
