// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// clusterProperty is the property that contains the infraID of a server's cluster.
	clusterProperty = "openshiftClusterID"
	// pageSize is the requested size of a page; the cloud may return fewer servers. maxPages and maxServers limit one
	// listing.
	pageSize   = 500
	maxPages   = 1000
	maxServers = 50_000
	// listTimeoutFactor limits the time for all pages of a listing, as a multiple of the timeout of one call.
	listTimeoutFactor = 3
	maxNameBytes      = 255
	maxAddresses      = 64
)

// ListMachines implements rest.OneByOneAccount. One listing of the whole project serves any number of clusters, because
// the API filters names by only one regular expression at a time.
func (c *projectClient) ListMachines(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, actuator.Errorf(actuator.Other, "the infraID is empty, but Torpor finds servers by it: set spec.clusterMetadata.infraID")
	}
	found := map[string][]actuator.Machine{}
	err := c.call(ctx, list, listTimeoutFactor*c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		pages, count := 0, 0
		// All pages are read before a decision. A server on a missing page would seem deleted, and the cluster would
		// count as stopped while it runs.
		return servers.List(compute, servers.ListOpts{Limit: pageSize}).EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
			all, err := servers.ExtractServers(page)
			if err != nil {
				return false, errNotOpenStack
			}
			pages, count = pages+1, count+len(all)
			if pages > maxPages || count > maxServers {
				return false, errListTooLong
			}
			return true, c.addMachines(found, all, infraIDs)
		})
	})
	if err != nil {
		return nil, err
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found, nil
}

func (c *projectClient) addMachines(found map[string][]actuator.Machine, page []servers.Server, wanted []string) error {
	for i := range page {
		s := &page[i]
		if s.ID == "" || len(s.ID) > maxNameBytes || strings.ContainsAny(s.ID, "/?# ") {
			return errNotOpenStack
		}
		infraID := s.Metadata[clusterProperty]
		if infraID == "" || !slices.Contains(wanted, infraID) || isGone(s) {
			continue
		}
		name := strings.ToValidUTF8(s.Name, "")
		found[infraID] = append(found[infraID], actuator.Machine{
			ID: s.ID, Name: name[:min(len(name), maxNameBytes)], State: stateOf(s), HoldsCapacity: c.holdsCapacity(s), Account: c.owner,
			Addresses: addressesOf(s), Role: actuator.FindRole(maps.All(s.Metadata), infraID, name), Group: senlinClusterOf(s),
		})
	}
	return nil
}

// senlinClusterOf returns the ID of the Senlin cluster that a server is a node of, or "". Senlin sets the properties
// cluster_node_id and cluster_id. Senlin replaces or rebuilds inactive nodes if a health policy is attached to the
// cluster:
// https://docs.openstack.org/senlin/latest/user/policy_types/health.html
func senlinClusterOf(s *servers.Server) string {
	if s.Metadata["cluster_node_id"] == "" {
		return ""
	}
	id := s.Metadata["cluster_id"]
	return strings.ToValidUTF8(id[:min(len(id), maxNameBytes)], "")
}

func isGone(s *servers.Server) bool {
	return s.TaskState == "deleting" || slices.Contains([]string{"DELETED", "SOFT_DELETED"}, s.Status)
}

// stateOf returns the state of a server, from its task and its status.
func stateOf(s *servers.Server) actuator.MachineState {
	switch {
	case strings.HasPrefix(s.TaskState, "powering-off"), strings.HasPrefix(s.TaskState, "shelving"), s.TaskState == "suspending":
		return actuator.Stopping
	case s.TaskState != "" && s.Status != "ACTIVE", slices.Contains([]string{"powering-on", "unshelving", "resuming"}, s.TaskState):
		return actuator.Starting
	}
	switch s.Status {
	case "ACTIVE", "PASSWORD", "VERIFY_RESIZE", "MIGRATING", "RESCUE", "PAUSED":
		return actuator.Running // A paused server occupies its host's capacity and memory.
	case "SHUTOFF", "SHELVED", "SHELVED_OFFLOADED", "SUSPENDED":
		return actuator.Stopped
	case "ERROR":
		if s.PowerState == servers.RUNNING {
			return actuator.Running
		}
		return actuator.Stopped
	default:
		return actuator.Starting // BUILD, REBOOT, RESIZE and unknown statuses count as Starting, so Torpor waits.
	}
}

// holdsCapacity reports whether a server is off but still occupies its host, in a cluster with servers that should be
// shelved. A server with the status SHELVED does not count, because only the cloud and its administrators decide when
// it leaves its host.
func (c *projectClient) holdsCapacity(s *servers.Server) bool {
	return c.shelves && s.TaskState == "" && slices.Contains([]string{"SHUTOFF", "SUSPENDED"}, s.Status)
}

// addressesOf returns at most maxAddresses of a server's addresses, from all its networks.
func addressesOf(s *servers.Server) []string {
	var all []string
	for _, network := range slices.Sorted(maps.Keys(s.Addresses)) {
		entries, isList := s.Addresses[network].([]any)
		if !isList {
			continue
		}
		for _, entry := range entries {
			fields, isObject := entry.(map[string]any)
			if !isObject || len(all) == maxAddresses {
				continue
			}
			all = append(all, fmt.Sprint(fields["addr"]))
		}
	}
	return all
}
