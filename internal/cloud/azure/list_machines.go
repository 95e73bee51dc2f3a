// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"

	"github.com/torpor-dev/torpor/actuator"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxPages and maxMachines limit one listing. A subscription has at most 25,000 machines in a region.
	maxPages    = 500
	maxMachines = 50_000
	// listTimeoutFactor limits the time for all pages of a listing, as a multiple of the timeout of one call.
	listTimeoutFactor = 3
	// maxNameBytes limits the names of groups and machines. Azure's own limit is lower.
	maxNameBytes = 128
)

// machineName is a parsed ID. Azure ignores case, and its answers spell the same group in several ways.
type machineName struct{ group, name string }

func (m machineName) id() string { return strings.ToLower(m.group + "/" + m.name) }

// parseMachineName parses an ID.
func parseMachineName(id string) (machineName, bool) {
	group, name, ok := strings.Cut(id, "/")
	return machineName{group, name}, ok && group != "" && name != "" && !strings.Contains(name, "/")
}

// ListMachines implements cloudrest.OneByOneAccount. The infraIDs are the names of resource groups. A listing with
// power states covers the whole subscription and serves any number of groups. A listing of a single group has no
// power states, and would need one call for each machine.
func (c *accountClient) ListMachines(ctx context.Context, groups []string) (map[string][]actuator.Machine, error) {
	wanted := map[string][]string{}
	for _, group := range groups {
		if group == "" {
			return nil, actuator.Errorf(actuator.Other, "the resource group is empty, and machines are found by it: set spec.clusterMetadata.platform.azure.resourceGroupName")
		}
		key := strings.ToLower(group)
		wanted[key] = append(wanted[key], group)
	}
	all, cancel := context.WithTimeout(ctx, listTimeoutFactor*c.timeout)
	defer cancel()
	pages := c.machines.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: new("true")})
	found, count := map[string][]actuator.Machine{}, 0
	// All pages are read before a decision. A machine on a missing page would seem deleted, and the cluster would
	// count as stopped while it runs.
	for n := 0; pages.More(); n++ {
		if n >= maxPages || count > maxMachines {
			return nil, unreachableErrorf(list, "the list has more pages or machines than allowed")
		}
		var page armcompute.VirtualMachinesClientListAllResponse
		err := c.callWithTimeout(all, list, func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			return err
		})
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, unreachableErrorf(list, "the list takes too long to read")
		case err != nil:
			return nil, err
		}
		count += len(page.Value)
		if err := c.addMachines(found, page.Value, wanted); err != nil {
			return nil, err
		}
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found, nil
}

// addMachines assigns the machines of a page to the wanted groups.
func (c *accountClient) addMachines(found map[string][]actuator.Machine, page []*armcompute.VirtualMachine, wanted map[string][]string) error {
	for _, vm := range page {
		if vm == nil || vm.ID == nil {
			return unreachableErrorf(list, "the answer is not a valid Azure response")
		}
		id, err := arm.ParseResourceID(*vm.ID)
		if err != nil || len(id.Name) > maxNameBytes || !strings.EqualFold(id.SubscriptionID, c.subscription) {
			return unreachableErrorf(list, "the answer is not a valid Azure response")
		}
		owners := wanted[strings.ToLower(id.ResourceGroupName)]
		if len(owners) == 0 || isBeingDeleted(vm) {
			continue
		}
		machine := actuator.Machine{
			ID: machineName{id.ResourceGroupName, id.Name}.id(), Name: strings.ToValidUTF8(id.Name, ""), Account: c.owner,
		}
		machine.State, machine.HoldsCapacity = powerStateOf(vm)
		machine.Group = scaleSetOf(vm)
		for _, owner := range owners {
			// A group has its cluster's name unless its owner chose another name.
			machine.Role = actuator.FindRole(eachTag(vm), strings.TrimSuffix(strings.ToLower(owner), "-rg"), id.Name)
			found[owner] = append(found[owner], machine)
		}
	}
	return nil
}

// eachTag yields the tags of a machine.
func eachTag(vm *armcompute.VirtualMachine) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, value := range vm.Tags {
			if value != nil && !yield(key, *value) {
				return
			}
		}
	}
}

// scaleSetOf returns the name of the virtual machine scale set with flexible orchestration that a machine belongs to,
// or "". Such a set may replace members by automatic repairs or autoscale rules. The listing shows neither, and
// autoscale rules belong to another API with separate rights. Every set is therefore assumed to replace its members
// (docs/adr/0041-members-of-groups-are-not-stopped.md).
func scaleSetOf(vm *armcompute.VirtualMachine) string {
	if vm.Properties == nil || vm.Properties.VirtualMachineScaleSet == nil || vm.Properties.VirtualMachineScaleSet.ID == nil {
		return ""
	}
	id := *vm.Properties.VirtualMachineScaleSet.ID
	name := id[strings.LastIndexByte(id, '/')+1:]
	return strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], "")
}

func isBeingDeleted(vm *armcompute.VirtualMachine) bool {
	return vm.Properties != nil && vm.Properties.ProvisioningState != nil && strings.EqualFold(*vm.Properties.ProvisioningState, "Deleting")
}

// powerStateOf returns the state of a machine, and whether the machine is off but still billed. A machine that is
// being created has no power state yet, and on a broken host the state is unknown. In both cases the machine counts
// as neither on nor off, and Torpor waits for it.
func powerStateOf(vm *armcompute.VirtualMachine) (state actuator.MachineState, holdsCapacity bool) {
	if vm.Properties == nil || vm.Properties.InstanceView == nil {
		return actuator.Starting, false
	}
	for _, status := range vm.Properties.InstanceView.Statuses {
		if status == nil || status.Code == nil {
			continue
		}
		power, ok := strings.CutPrefix(strings.ToLower(*status.Code), "powerstate/")
		if !ok {
			continue
		}
		switch power {
		case "running":
			return actuator.Running, false
		case "stopping", "deallocating":
			return actuator.Stopping, false
		case "stopped":
			return actuator.Stopped, true
		case "deallocated":
			return actuator.Stopped, false
		}
	}
	return actuator.Starting, false
}

// callWithTimeout makes one API call, with all its attempts, within the client's timeout.
func (c *accountClient) callWithTimeout(ctx context.Context, operation string, do func(context.Context) error) error {
	return cloudrest.CallWithTimeout(ctx, c.timeout, do, func(err error) error {
		if errors.Is(err, httpguard.ErrAnswerTooLarge) {
			return unreachableErrorf(operation, "the answer is larger than allowed")
		}
		return c.explainError(operation, err)
	})
}
