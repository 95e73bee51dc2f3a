// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/actuator/actuatortest"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestAMemberOfAScaleSetHasTheNameOfTheSet(t *testing.T) {
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/workers"
	member := &armcompute.VirtualMachine{Properties: &armcompute.VirtualMachineProperties{
		VirtualMachineScaleSet: &armcompute.SubResource{ID: new(id)},
	}}
	testenv.ExpectEqual(t, "scale set", "workers", scaleSetOf(member))
	testenv.ExpectEqual(t, "scale set of a machine without one", "", scaleSetOf(&armcompute.VirtualMachine{}))
}

// expectGroupsByID checks the groups of a cluster's machines.
func (c *simulatedCluster) expectGroupsByID(t *testing.T, want map[string]string) {
	t.Helper()
	machines, err := c.actuator.Observe(t.Context(), c.Target())
	testenv.ExpectNoError(t, err)
	found := map[string]string{}
	for _, m := range machines {
		found[m.ID] = m.Group
	}
	testenv.ExpectEqual(t, "groups", want, found)
}

// TestInstancesOfUniformScaleSetsAreMembers uses scale sets of two clusters, whose listing has more than one page.
func TestInstancesOfUniformScaleSetsAreMembers(t *testing.T) {
	cloud := startAzure(t)
	c, other := cloud.newCluster(), cloud.newCluster()
	ids := c.Create(t, 3)
	c.joinUniformSet(t, ids[1], "workers")
	c.joinUniformSet(t, ids[2], "workers")
	for range 2 * pageSize {
		other.joinUniformSet(t, "", "pool-"+string(rune('a'+len(cloud.scaleSets))))
	}
	set := c.scaleSet("workers", armcompute.OrchestrationModeUniform)
	want := map[string]string{ids[0]: "", set + "/0": "workers", set + "/1": "workers"}
	c.expectGroupsByID(t, want)
	testenv.ExpectEqual(t, "calls for the sets", 3, c.CountCalls()[scaleSetRead])
	for _, id := range []string{set + "/0", set} {
		if err := c.actuator.Stop(t.Context(), c.Target(), []string{id}); actuator.ClassOf(err) != actuator.NotFound {
			t.Errorf("expected that an order for %s finds no machine, found %v", id, err)
		}
	}
	c.Change(func() { c.scaleSets[set].isDeleting = true })
	c.expectGroupsByID(t, map[string]string{ids[0]: ""})
	c.Change(func() { c.scaleSets[set].isDeleting, c.scaleSets[set].capacity = false, 0 })
	c.expectGroupsByID(t, map[string]string{ids[0]: ""})
}

func TestUnusualScaleSetsAreCounted(t *testing.T) {
	uniform, flexible := armcompute.OrchestrationModeUniform, armcompute.OrchestrationModeFlexible
	for name, row := range map[string]struct {
		set  armcompute.VirtualMachineScaleSet
		want int
	}{
		"set without a mode is uniform":               {armcompute.VirtualMachineScaleSet{SKU: &armcompute.SKU{Capacity: new(int64(3))}}, 3},
		"set without a capacity counts as one":        {armcompute.VirtualMachineScaleSet{Properties: &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: &uniform}}, 1},
		"members of a flexible set are not counted":   {armcompute.VirtualMachineScaleSet{SKU: &armcompute.SKU{Capacity: new(int64(3))}, Properties: &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: &flexible}}, 0},
		"capacity above Azure's limit counts as 1000": {armcompute.VirtualMachineScaleSet{SKU: &armcompute.SKU{Capacity: new(int64(1) << 60)}}, 1000},
		"negative capacity counts as zero":            {armcompute.VirtualMachineScaleSet{SKU: &armcompute.SKU{Capacity: new(int64(-1))}}, 0},
	} {
		t.Run(name, func(t *testing.T) { testenv.ExpectEqual(t, "instances", row.want, instancesOf(&row.set)) })
	}
}

// TestScaleSetsThatMayNotBeReadPreventStops uses a service principal whose role lacks the right to read scale sets.
// Machines are listed and started as before.
func TestScaleSetsThatMayNotBeReadPreventStops(t *testing.T) {
	c := startAzure(t).newCluster()
	ids := c.Create(t, 2)
	t.Run("role without the right to read scale sets prevents a stop", func(t *testing.T) {
		c.Inject(t, actuatortest.Fault{Operation: scaleSetRead, Status: http.StatusForbidden, Code: "AuthorizationFailed"})
		c.expectGroupsByID(t, map[string]string{ids[0]: "", ids[1]: ""})
		testenv.ExpectNoError(t, c.actuator.Start(t.Context(), c.Target(), ids))
		c.CountCalls()
		err := c.actuator.Stop(t.Context(), c.Target(), ids)
		if actuator.ClassOf(err) != actuator.PermissionDenied || !strings.Contains(err.Error(), "Microsoft.Compute/"+scaleSetRead) {
			t.Errorf("expected an error that names the right, found %v", err)
		}
		testenv.ExpectEqual(t, "orders to stop machines", 0, c.CountCalls()[deallocate])
	})
	c.expectGroupsByID(t, map[string]string{ids[0]: "", ids[1]: ""})
	testenv.ExpectNoError(t, c.actuator.Stop(t.Context(), c.Target(), ids))
}

// TestFailedListingsOfScaleSetsAreErrors expects that no machine is reported if the scale sets are unknown.
func TestFailedListingsOfScaleSetsAreErrors(t *testing.T) {
	for name, row := range map[string]struct {
		fault actuatortest.Fault
		class actuator.ErrorClass
	}{
		"throttled listing of scale sets is Throttled":                     {actuatortest.Fault{Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "90"}, actuator.Throttled},
		"server error at the listing of scale sets is Unreachable":         {actuatortest.Fault{Status: http.StatusServiceUnavailable, Code: "ServerBusy"}, actuator.Unreachable},
		"expired token at the listing of scale sets is CredentialsInvalid": {actuatortest.Fault{Status: http.StatusUnauthorized, Code: "ExpiredAuthenticationToken"}, actuator.CredentialsInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			c := startAzure(t).newCluster()
			c.Create(t, 1)
			row.fault.Operation = scaleSetRead
			c.Inject(t, row.fault)
			if machines, err := c.actuator.Observe(t.Context(), c.Target()); err == nil || actuator.ClassOf(err) != row.class || machines != nil {
				t.Errorf("expected an error of the class %q, found %v and machines %v", row.class, err, machines)
			}
		})
	}
}

// TestTheSimulatedScaleSetReplacesMembers stops a member without the checks of the manager.
func TestTheSimulatedScaleSetReplacesMembers(t *testing.T) {
	c := startAzure(t).newCluster()
	ids := c.Create(t, 2)
	c.JoinGroup(t, ids[0], "workers")
	testenv.ExpectNoError(t, c.actuator.Stop(t.Context(), c.Target(), ids[:1]))
	c.Settle(t)
	testenv.Eventually(t, "the set has replaced the member", func() error {
		machines, err := c.actuator.Observe(t.Context(), c.Target())
		testenv.ExpectNoError(t, err)
		for _, m := range machines {
			if m.ID == ids[0] || m.State != actuator.Running || len(machines) != 2 {
				return testenv.ErrorIf(true, "found %+v", machines)
			}
		}
		return nil
	})
}
