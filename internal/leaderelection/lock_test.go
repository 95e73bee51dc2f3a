// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// countingHub accepts all writes of a Lease, and counts them.
type countingHub struct {
	client.Client

	writes int
}

func (c *countingHub) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	holder := "me"
	into.(*coordinationv1.Lease).Spec.HolderIdentity = &holder
	return nil
}

func (c *countingHub) Update(context.Context, client.Object, ...client.UpdateOption) error {
	c.writes++
	return nil
}

func (c *countingHub) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	c.writes++
	return nil
}

// TestRenewalsAreSentOncePerInterval updates a Lease as client-go does, in each retryPeriod.
func TestRenewalsAreSentOncePerInterval(t *testing.T) {
	if renewInterval+retryPeriod+renewDeadline >= leaseDuration {
		t.Fatal("expected the holder to end before its Lease expires")
	}
	for name, part := range map[string]*Part{"Lease of a part": {}, "Lease of earlier releases": nil} {
		t.Run(name, func(t *testing.T) {
			hub, now := &countingHub{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			l := &lock{election: &Election{Options: Options{Reader: hub, Client: hub}}, part: part, identity: "me"}
			var writes []int
			update := func(by string, after time.Duration) {
				t.Helper()
				now = now.Add(after)
				testenv.ExpectNoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: by, RenewTime: metav1.NewTime(now)}))
				writes = append(writes, hub.writes)
			}
			_, _, err := l.Get(t.Context())
			testenv.ExpectNoError(t, err)
			for range 11 {
				update("me", retryPeriod)
			}
			if want := []int{1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3}; !slices.Equal(writes, want) {
				t.Errorf("expected a write per %s, %v, found %v", renewInterval, want, writes)
			}
			_, _, err = l.Get(t.Context())
			testenv.ExpectNoError(t, err)
			writes = nil
			update("me", retryPeriod)  // The Lease was read, so it may have been written by another manager.
			update("me", -time.Minute) // The clock was set back.
			update("", retryPeriod)    // The Lease is released.
			if want := []int{4, 5, 6}; !slices.Equal(writes, want) {
				t.Errorf("expected each write to be sent, %v, found %v", want, writes)
			}
		})
	}
}
