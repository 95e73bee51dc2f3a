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
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
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

// machineName is the parsed ID of a machine. Azure ignores case in names, and its responses spell the same group
// differently.
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
	l := machineListing{wanted: map[string][]string{}, found: map[string][]actuator.Machine{}, locations: map[string]string{}}
	for _, group := range groups {
		if group == "" {
			return nil, actuator.Errorf(actuator.Other, "the resource group is empty, but Torpor finds machines by it: set spec.clusterMetadata.platform.azure.resourceGroupName")
		}
		key := strings.ToLower(group)
		l.wanted[key] = append(l.wanted[key], group)
	}
	all, cancel := context.WithTimeout(ctx, listTimeoutFactor*c.timeout)
	defer cancel()
	err := c.listVirtualMachines(all, l)
	if err == nil {
		err = c.listScaleSets(all, l)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, unreachableErrorf(list, "the list takes too long to read")
	case err != nil:
		return nil, err
	}
	c.quotas.NoteExceeded(all, l.found, l.quotaLocationOf, c.readQuotas)
	for _, machines := range l.found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return l.found, nil
}

// machineListing collects the machines of resource groups.
type machineListing struct {
	// wanted maps the names of groups in lower case to the requested names.
	wanted map[string][]string
	// found maps the requested names of groups to their machines.
	found map[string][]actuator.Machine
	// locations maps the IDs of machines to their locations.
	locations map[string]string
}

// listVirtualMachines lists the machines with power states. Instances of scale sets with uniform orchestration are not
// among them.
func (c *accountClient) listVirtualMachines(ctx context.Context, l machineListing) error {
	pages := c.machines.NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: new("true")})
	return readPages(ctx, c, list, pages, func(page armcompute.VirtualMachinesClientListAllResponse) (int, error) {
		return len(page.Value), c.addMachines(l, page.Value)
	})
}

// readPages reads all pages of a listing. add evaluates a page, and returns the number of its entries. All pages are
// read before a decision. A machine on a missing page would seem deleted, and the cluster would count as stopped while
// it runs.
func readPages[P any](ctx context.Context, c *accountClient, operation string, pages *runtime.Pager[P], add func(P) (int, error)) error {
	count := 0
	for n := 0; pages.More(); n++ {
		if n >= maxPages || count > maxMachines {
			return unreachableErrorf(operation, "the list has more pages or machines than allowed")
		}
		var page P
		err := c.callWithTimeout(ctx, operation, func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			return err
		})
		if err != nil {
			return err
		}
		added, err := add(page)
		if err != nil {
			return err
		}
		count += added
	}
	return nil
}

// addMachines assigns the machines of a page to the wanted groups.
func (c *accountClient) addMachines(l machineListing, page []*armcompute.VirtualMachine) error {
	for _, vm := range page {
		if vm == nil {
			return unreachableErrorf(list, "the response is not a valid Azure response")
		}
		id, err := c.parseResourceID(list, vm.ID)
		if err != nil {
			return err
		}
		owners := l.wanted[strings.ToLower(id.ResourceGroupName)]
		if len(owners) == 0 || isBeingDeleted(vm) {
			continue
		}
		machine := actuator.Machine{
			ID: machineName{id.ResourceGroupName, id.Name}.id(), Name: strings.ToValidUTF8(id.Name, ""), Account: c.owner,
		}
		machine.State, machine.HoldsCapacity = powerStateOf(vm)
		machine.Group = scaleSetOf(vm)
		for _, owner := range owners {
			// A resource group has the name of its cluster, followed by -rg, unless its owner chose another name.
			machine.Role = actuator.FindRole(eachTag(vm.Tags), strings.TrimSuffix(strings.ToLower(owner), "-rg"), id.Name)
			l.found[owner] = append(l.found[owner], machine)
		}
		if vm.Location != nil {
			l.locations[machine.ID] = strings.ToLower(*vm.Location)
		}
	}
	return nil
}

// parseResourceID parses the ID of a resource of the subscription.
func (c *accountClient) parseResourceID(operation string, text *string) (*arm.ResourceID, error) {
	if text == nil {
		return nil, unreachableErrorf(operation, "the response is not a valid Azure response")
	}
	id, err := arm.ParseResourceID(*text)
	if err != nil || len(id.Name) > maxNameBytes || !strings.EqualFold(id.SubscriptionID, c.subscription) {
		return nil, unreachableErrorf(operation, "the response is not a valid Azure response")
	}
	return id, nil
}

// eachTag yields the tags of a machine or a scale set.
func eachTag(tags map[string]*string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, value := range tags {
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

// powerStateOf returns the state of a machine, and whether the machine is off but still billed. A machine that is being
// created has no power state yet, and on a broken host the state is unknown. In both cases the machine counts as
// Starting, so Torpor waits for it.
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
			return unreachableErrorf(operation, "the response is larger than allowed")
		}
		return c.explainError(operation, err)
	})
}
