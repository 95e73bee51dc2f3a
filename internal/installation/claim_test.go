// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestLiveHolder(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	held := func(by string, seconds int32, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &by, LeaseDurationSeconds: &seconds, RenewTime: new(metav1.NewMicroTime(now.Add(-ago)))}}
	}
	for name, row := range map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"nobody has ever held it":           {&coordinationv1.Lease{}, ""},
		"it was renewed a moment ago":       {held("a", 60, 59*time.Second), "a"},
		"it has run out":                    {held("a", 60, time.Minute), ""},
		"it was given back":                 {held("", 60, time.Second), ""},
		"another version renews less often": {held("a", 600, 5*time.Minute), "a"},
		"the other clock is ahead":          {held("a", 60, -time.Minute), "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if found := liveHolder(row.lease, now); found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}

func TestOneInstallationActs(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	claim := func(namespace string) *Claim {
		return &Claim{Reader: hub.Client, Client: hub.Client, Namespace: namespace, Clock: now}
	}
	attempt := func(c *Claim, acts bool, words string) {
		t.Helper()
		c.note(t.Context(), c.renew(t.Context()))
		failure := c.CheckClaim(nil)
		if c.IsHeld() != acts || (failure == nil) != (words == "") || failure != nil && !strings.Contains(failure.Error(), words) {
			t.Errorf("expected acts %t and %q, found %t and %v", acts, words, c.IsHeld(), failure)
		}
	}
	first, replica, second := claim("torpor-system"), claim("torpor-system"), claim("other")
	if first.IsHeld() || first.CheckClaim(nil) != nil {
		t.Error("expected a replica that does not lead to be ready and not to act")
	}
	attempt(first, true, "")
	for range 5 {
		attempt(second, false, "held by the one in the namespace torpor-system; this one, in other, waits until that is uninstalled")
		now.Step(renewInterval)
		attempt(first, true, "")
	}
	t.Log("The next leader of the same installation goes on at once.")
	attempt(replica, true, "")
	t.Log("When the installation is gone the other one acts, and does not give way when it comes back.")
	now.Step(leaseDuration)
	attempt(second, true, "")
	attempt(first, false, "in the namespace other")
	t.Log("A call that fails changes nothing until the Lease has run out.")
	failed := k8serrors.NewForbidden(schema.GroupResource{Resource: "leases"}, LeaseName, nil)
	now.Step(leaseDuration - time.Second)
	second.note(t.Context(), failed)
	if !second.IsHeld() || second.CheckClaim(nil) != nil {
		t.Error("expected the claim to stay for a minute, found it lost")
	}
	now.Step(time.Second)
	second.note(t.Context(), failed)
	if second.IsHeld() || second.CheckClaim(nil) == nil {
		t.Error("expected the claim to be lost, found it held")
	}
	lease := &coordinationv1.Lease{}
	if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: LeaseNamespace, Name: LeaseName}, lease); err != nil || *lease.Spec.LeaseTransitions != 2 {
		t.Errorf("expected two transitions, found %v (%v)", lease.Spec, err)
	}
}
