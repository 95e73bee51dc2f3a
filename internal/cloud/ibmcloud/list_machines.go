// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// vpcSuffix is the end of the name of the VPC that OpenShift's installer creates for a cluster.
	vpcSuffix = "-vpc"
	// pageSize is the maximum size of a page. maxPages and maxMachines limit one listing.
	pageSize    = 100
	maxPages    = 1000
	maxMachines = 50_000
	// listTimeoutFactor limits the time for all pages of a listing, as a multiple of the timeout of one call.
	listTimeoutFactor = 3
	maxNameBytes      = 128
	maxAddresses      = 64
)

// vpcInstance is the part of an instance that Torpor reads.
type vpcInstance struct {
	ID            string         `json:"id"`
	CRN           string         `json:"crn"`
	Name          string         `json:"name"`
	Status        string         `json:"status"`
	StatusReasons []statusReason `json:"status_reasons"`
	VPC           namedReference `json:"vpc"`
	ResourceGroup namedReference `json:"resource_group"`
	// Membership is nil for an instance that is not a member of an instance group.
	Membership *groupMembership `json:"instance_group_membership"`
	// Older instances have Interfaces, and newer instances have Attachments.
	Interfaces  []networkAttachment `json:"network_interfaces"`
	Attachments []networkAttachment `json:"network_attachments"`
}

// statusReason is the reason for the state of an instance.
type statusReason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type namedReference struct {
	Name string `json:"name"`
}

// groupMembership is the membership of an instance in an instance group.
type groupMembership struct {
	ID    string `json:"id"`
	Group struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"instance_group"`
}

type networkAttachment struct {
	PrimaryIP struct {
		Address string `json:"address"`
	} `json:"primary_ip"`
}

// instancePage is one page of a listing.
type instancePage struct {
	Instances []vpcInstance `json:"instances"`
	Next      *struct {
		HRef string `json:"href"`
	} `json:"next"`
}

// ListMachines implements rest.OneByOneAccount. One listing of the whole region serves any number of clusters. All
// pages are read before a decision. An instance on a missing page would seem deleted, and the cluster would count as
// stopped while it runs.
func (c *regionAccount) ListMachines(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, actuator.Errorf(actuator.Other, "the infraID is empty, but Torpor finds instances by it: set spec.clusterMetadata.infraID")
	}
	all, cancel := context.WithTimeout(ctx, listTimeoutFactor*c.client.Timeout)
	defer cancel()
	found, count := map[string][]actuator.Machine{}, 0
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for n := 0; ; n++ {
		var page instancePage
		err := c.call(all, vpcRequest{operation: list, method: http.MethodGet, path: "/instances", query: query}, &page)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, unreachableErrorf(list, "the list takes too long to read")
		case err != nil:
			return nil, err
		}
		if err := addPage(found, page.Instances, infraIDs); err != nil {
			return nil, err
		}
		if count += len(page.Instances); n >= maxPages || count > maxMachines {
			return nil, unreachableErrorf(list, "the list has more pages or instances than allowed")
		}
		if page.Next == nil {
			break
		}
		// Only the start parameter of the next page's URL is used, so the token is never sent elsewhere.
		next, err := url.Parse(page.Next.HRef)
		if err != nil || next.Query().Get("start") == "" {
			return nil, unreachableErrorf(list, "the response is not a valid IBM Cloud VPC response")
		}
		query.Set("start", next.Query().Get("start"))
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found, nil
}

// addPage assigns the instances of a page to the wanted clusters.
func addPage(found map[string][]actuator.Machine, page []vpcInstance, infraIDs []string) error {
	for i := range page {
		vm := &page[i]
		if !isInstanceID(vm.ID) || len(vm.Name) > maxNameBytes {
			return unreachableErrorf(list, "the response is not a valid IBM Cloud VPC response")
		}
		if vm.Status == "deleting" {
			continue
		}
		for _, infraID := range infraIDs {
			if isOwnedBy(vm, infraID) {
				found[infraID] = append(found[infraID], describeMachine(vm, infraID))
			}
		}
	}
	return nil
}

// isOwnedBy reports whether an instance belongs to a cluster. The name is not enough, because one cluster's name may
// begin with another's.
func isOwnedBy(vm *vpcInstance, infraID string) bool {
	return strings.HasPrefix(vm.Name, infraID+"-") && (vm.VPC.Name == infraID+vpcSuffix || vm.ResourceGroup.Name == infraID)
}

func describeMachine(vm *vpcInstance, infraID string) actuator.Machine {
	machine := actuator.Machine{
		ID: vm.ID, Name: strings.ToValidUTF8(vm.Name, ""), State: stateOf(vm.Status), Account: ownerOf(vm.CRN),
		Role: actuator.FindRole(nil, infraID, vm.Name), Group: groupOf(vm),
	}
	for _, a := range slices.Concat(vm.Attachments, vm.Interfaces) {
		if a.PrimaryIP.Address != "" && !slices.Contains(machine.Addresses, a.PrimaryIP.Address) && len(machine.Addresses) < maxAddresses {
			machine.Addresses = append(machine.Addresses, a.PrimaryIP.Address)
		}
	}
	return machine
}

// groupOf returns the name of the instance group that an instance is a member of, or "". The group replaces a member
// that is stopped: https://cloud.ibm.com/docs/vpc?topic=vpc-resizing-an-instance#resizing-instance-templates-groups
// A membership without the group's name also counts, because a stop could destroy the instance.
func groupOf(vm *vpcInstance) string {
	if vm.Membership == nil {
		return ""
	}
	name := cmp.Or(vm.Membership.Group.Name, vm.Membership.Group.ID, vm.Membership.ID, vm.ID)
	return strings.ToValidUTF8(name[:min(len(name), maxNameBytes)], "")
}

// ownerOf returns the name of an instance's account among the accounts of all clouds. The name contains the scope in
// the instance's CRN, as in crn:v1:bluemix:public:is:eu-de-1:a/0123::instance:ID.
func ownerOf(crn string) string {
	const scopePart = 6
	parts := strings.Split(crn, ":")
	if len(parts) <= scopePart || len(parts[scopePart]) > maxNameBytes {
		return ""
	}
	return "ibmcloud/" + parts[scopePart]
}

// isInstanceID reports whether a text can be the ID of an instance, because the ID becomes part of a URL.
func isInstanceID(text string) bool {
	return text != "" && len(text) <= maxNameBytes && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// stateOf converts a status.
func stateOf(status string) actuator.MachineState {
	switch status {
	case "running":
		return actuator.Running
	case "stopping":
		return actuator.Stopping
	case "stopped", "failed":
		return actuator.Stopped // A failed instance does not run. A start returns the reason.
	default:
		return actuator.Starting // Torpor waits if the status is pending, starting, restarting or unknown.
	}
}
