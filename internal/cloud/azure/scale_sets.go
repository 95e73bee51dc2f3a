// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/torpor-dev/torpor/actuator"
)

// A virtual machine scale set with uniform orchestration, such as an agent pool of AKS, keeps as many instances as its
// capacity. The instances are not part of the listing of machines, and a listing of the instances would take one call
// for each set. The listing of all sets has their capacities, and takes one call for a subscription:
// https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-orchestration-modes

// scaleSetRead is the listing of the scale sets of a subscription.
const scaleSetRead = "virtualMachineScaleSets/read"

// maxCapacity is the largest capacity of a scale set.
const maxCapacity = 1000

// listScaleSets adds the instances of the scale sets with uniform orchestration in the wanted resource groups. If the
// service principal has no right to read scale sets, the machines are still listed and started, but RequireStopRights
// fails.
func (c *accountClient) listScaleSets(ctx context.Context, l machineListing) error {
	err := readPages(ctx, c, scaleSetRead, c.scaleSets.NewListAllPager(nil), func(page armcompute.VirtualMachineScaleSetsClientListAllResponse) (int, error) {
		return len(page.Value), c.addScaleSets(l, page.Value)
	})
	isRefused := err != nil && actuator.ClassOf(err) == actuator.PermissionDenied
	c.mayNotReadScaleSets.Store(isRefused)
	if isRefused {
		return nil
	}
	return err
}

// addScaleSets assigns the instances of the scale sets of a page to the wanted groups.
func (c *accountClient) addScaleSets(l machineListing, page []*armcompute.VirtualMachineScaleSet) error {
	for _, set := range page {
		if set == nil {
			return unreachableErrorf(scaleSetRead, "the response is not a valid Azure response")
		}
		id, err := c.parseResourceID(scaleSetRead, set.ID)
		if err != nil {
			return err
		}
		for _, owner := range l.wanted[strings.ToLower(id.ResourceGroupName)] {
			// The listing contains no IDs of instances. The IDs that are built here differ from the IDs of machines,
			// and no order accepts them.
			machine := actuator.Machine{Name: strings.ToValidUTF8(id.Name, ""), Account: c.owner, State: actuator.Running}
			machine.Group = machine.Name
			machine.Role = actuator.FindRole(eachTag(set.Tags), strings.TrimSuffix(strings.ToLower(owner), "-rg"), id.Name)
			for n := range instancesOf(set) {
				machine.ID = fmt.Sprintf("%s/%d", machineName{id.ResourceGroupName, id.Name}.id(), n)
				l.found[owner] = append(l.found[owner], machine)
			}
		}
	}
	return nil
}

// instancesOf returns the number of instances that a scale set keeps. It returns 0 for a set with flexible
// orchestration, because its members are listed as machines, and for a set that is being deleted. Each instance counts
// as running, because the listing has no power states. A set without a capacity counts as one instance.
func instancesOf(set *armcompute.VirtualMachineScaleSet) int {
	if p := set.Properties; p != nil {
		isFlexible := p.OrchestrationMode != nil && strings.EqualFold(string(*p.OrchestrationMode), string(armcompute.OrchestrationModeFlexible))
		isDeleted := p.ProvisioningState != nil && strings.EqualFold(*p.ProvisioningState, "Deleting")
		if isFlexible || isDeleted {
			return 0
		}
	}
	if set.SKU == nil || set.SKU.Capacity == nil {
		return 1
	}
	return int(min(max(*set.SKU.Capacity, 0), maxCapacity))
}
