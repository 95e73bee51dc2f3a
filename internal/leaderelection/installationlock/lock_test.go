// SPDX-License-Identifier: Apache-2.0

package installationlock

import (
	"context"
	"strings"
	"testing"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// countingReader counts the reads of objects.
type countingReader struct {
	client.Reader

	count int
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r.count++
	return r.Reader.Get(ctx, key, obj, opts...)
}

func TestOneInstallationActs(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	now := clocktesting.NewFakeClock(time.Now())
	reads := &countingReader{Reader: hub.Client}
	lock := func(namespace string) *Lock {
		return &Lock{Reader: reads, Client: hub.Client, Namespace: namespace, Clock: now}
	}
	attempt := func(c *Lock, acts bool, words string) {
		t.Helper()
		c.note(t.Context(), c.renew(t.Context()))
		failure := c.CheckLock(nil)
		if c.IsHeld() != acts || (failure == nil) != (words == "") || failure != nil && !strings.Contains(failure.Error(), words) {
			t.Errorf("expected acts %t and %q, found %t and %v", acts, words, c.IsHeld(), failure)
		}
	}
	first, replica, second := lock("torpor-system"), lock("torpor-system"), lock("other")
	if first.IsHeld() || first.CheckLock(nil) != nil {
		t.Error("expected a replica that does not lead to be ready and inactive")
	}
	attempt(first, true, "")
	for range 5 {
		before := reads.count
		attempt(second, false, "the installation in namespace other waits until that installation is uninstalled")
		now.Step(renewInterval)
		attempt(first, true, "")
		if found := reads.count - before; found != 1 {
			t.Errorf("expected only the other installation to read the Lease, found %d reads", found)
		}
	}
	t.Log("The next leader of the same installation is active immediately, and both replicas renew the Lease.")
	attempt(replica, true, "")
	attempt(first, true, "")
	attempt(replica, true, "")
	t.Log("After the first installation is removed, the second one becomes active, and remains so when the first one returns.")
	now.Step(leaseDuration)
	attempt(second, true, "")
	attempt(first, false, "the installation in namespace other holds the Lease")
	t.Log("A failed request changes nothing before the Lease has expired.")
	failed := k8serrors.NewForbidden(schema.GroupResource{Resource: "leases"}, lease.Name, nil)
	now.Step(leaseDuration - time.Second)
	second.note(t.Context(), failed)
	if !second.IsHeld() || second.CheckLock(nil) != nil {
		t.Error("expected the lock to stay for a minute, found it lost")
	}
	now.Step(time.Second)
	second.note(t.Context(), failed)
	if second.IsHeld() || second.CheckLock(nil) == nil {
		t.Error("expected the lock to be lost, found it held")
	}
	held := newLease()
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil || *held.Spec.LeaseTransitions != 2 {
		t.Errorf("expected two transitions, found %v (%v)", held.Spec, err)
	}
}
