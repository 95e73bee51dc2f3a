// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"strings"
	"testing"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/lease"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestStandbyWithAnotherScopeIsNotReady covers replicas of two Deployments in the namespace of one installation.
func TestStandbyWithAnotherScopeIsNotReady(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	replica := func(deployment, controllers string) *Standby {
		return &Standby{Claim: &Claim{
			Reader: hub.Client, Client: hub.Client, Namespace: "torpor-system", Clock: now,
			Scope: lease.Scope{Controllers: strings.Split(controllers, ","), Deployment: deployment},
		}}
	}
	claim := func(s *Standby) {
		t.Helper()
		testenv.ExpectNoError(t, s.Claim.renew(t.Context()))
		s.Claim.note(t.Context(), nil)
	}
	expect := func(what string, s *Standby, words string) {
		t.Helper()
		s.compare(t.Context())
		failure := s.CheckScope(nil)
		if (failure == nil) != (words == "") || failure != nil && !strings.Contains(failure.Error(), words) {
			t.Errorf("%s: expected %q, found %v", what, words, failure)
		}
	}
	leader, rollout := replica("torpor-manager", "hibernation"), replica("torpor-manager", "hibernation,workloads")
	split, unknown := replica("torpor-workloads", "workloads"), replica("", "workloads")
	expect("no manager has ever led", split, "")
	claim(leader)
	expect("the leader", leader, "")
	expect("a Pod of the same Deployment with other flags", rollout, "")
	expect("a Pod of no known Deployment", unknown, "")
	expect("a Pod of another Deployment", split,
		"torpor-manager leads with the controllers hibernation in all namespaces, and that this replica of torpor-workloads waits with the controllers workloads in all namespaces")

	t.Log("If the Lease cannot be read, the last result is kept.")
	reader := split.Claim.Reader
	split.Claim.Reader = unreadable{hub.Client}
	expect("the Lease cannot be read", split, "torpor-manager leads")
	split.Claim.Reader = reader

	t.Log("The leader ends, and the Lease expires. Then the other replica leads.")
	now.Step(2 * leaseDuration)
	expect("no manager leads", split, "")
	claim(split)
	expect("the other one leads", split, "")
	leader.Claim.note(t.Context(), errTaken)
	expect("the first one waits", leader, "torpor-workloads leads with the controllers workloads")
	held := newLease()
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	if found := lease.Read(held, now.Now()); found.Scope == nil || found.Scope.Deployment != "torpor-workloads" {
		t.Errorf("expected the scope of the second one, found %+v", found)
	}
}

// unreadable is a client whose reads fail.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return k8serrors.NewForbidden(schema.GroupResource{Resource: "leases"}, lease.Name, nil)
}
