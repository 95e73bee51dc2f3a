// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/machinenames"
)

const (
	// clusterLabelPrefix is the prefix of the label with which OpenShift's installer and its machine API assign an
	// instance to a cluster.
	clusterLabelPrefix = "kubernetes-io-cluster-"
	// capgLabelPrefix is the prefix of Cluster API's label.
	capgLabelPrefix = "capg-cluster-"
	// ownedLabel is the value of both labels on instances that the cluster owns.
	ownedLabel = "owned"
	// pageSize is the requested and maximum size of a page. maxPages and maxMachines limit one listing.
	pageSize    = 500
	maxPages    = 1000
	maxMachines = 50_000
	// listTimeoutFactor limits the time for all pages of a listing, as a multiple of the timeout of one call.
	listTimeoutFactor = 3
	// maxFilterBytes keeps the URL of a listing short. For more clusters, the whole project is listed.
	maxFilterBytes = 2000
	maxNameBytes   = 63
	maxAddresses   = 64
	// emptyScope is the warning for a zone that has no instances on a page.
	emptyScope = "NO_RESULTS_ON_PAGE"
)

// machineName is the parsed ID of an instance.
type machineName struct{ zone, name string }

func (m machineName) id() string { return m.zone + "/" + m.name }

// path returns the path of the instance in its project.
func (m machineName) path() string { return "/zones/" + m.zone + "/instances/" + m.name }

// parseMachineName parses an ID. Its parts become parts of URLs.
func parseMachineName(id string) (machineName, bool) {
	zone, name, ok := strings.Cut(id, "/")
	return machineName{zone, name}, ok && isResourceName(zone) && isResourceName(name)
}

// isResourceName reports whether a text has only characters of names in Compute Engine, and is not too long.
func isResourceName(text string) bool {
	return text != "" && len(text) <= maxNameBytes && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// computeInstance is the part of an instance that Torpor reads.
type computeInstance struct {
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Labels     map[string]string `json:"labels"`
	Interfaces []struct {
		NetworkIP     string `json:"networkIP"`
		AccessConfigs []struct {
			NatIP string `json:"natIP"`
		} `json:"accessConfigs"`
	} `json:"networkInterfaces"`
	Metadata instanceMetadata `json:"metadata"`
}

// instancePage is one page of a listing over all zones.
type instancePage struct {
	Items map[string]struct {
		Instances []computeInstance `json:"instances"`
		Warning   *struct {
			Code string `json:"code"`
		} `json:"warning"`
	} `json:"items"`
	Unreachables  []string `json:"unreachables"`
	NextPageToken string   `json:"nextPageToken"`
}

// pageFields are the requested fields of a page. A listing with all fields would be ten times as long. The values of
// the metadata are not requested, because they include startup scripts of up to 256 KB.
const pageFields = "items/*/instances(name,status,labels,metadata(fingerprint,items/key),networkInterfaces(networkIP,accessConfigs/natIP))," +
	"items/*/warning/code,unreachables,nextPageToken"

// ListMachines implements rest.OneByOneAccount. All pages are read before a decision. An instance on a missing page
// would seem deleted, and the cluster would count as stopped while it runs.
func (c *projectAccount) ListMachines(ctx context.Context, infraIDs []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(infraIDs, "") {
		return nil, actuator.Errorf(actuator.Other, "the infraID is empty, but Torpor finds instances by it: set spec.clusterMetadata.infraID")
	}
	all, cancel := context.WithTimeout(ctx, c.listTimeout())
	defer cancel()
	found, claims, count := map[string][]actuator.Machine{}, groupClaims{}, 0
	query := url.Values{"maxResults": {strconv.Itoa(pageSize)}, "fields": {pageFields}, "returnPartialSuccess": {"false"}}
	if filter := filterOf(infraIDs); filter != "" {
		query.Set("filter", filter)
	}
	for n := 0; ; n++ {
		var page instancePage
		err := c.call(all, computeRequest{operation: list, method: http.MethodGet, path: "/aggregated/instances", query: query}, &page)
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, unreachableErrorf(list, "the list takes too long to read")
		case err != nil:
			return nil, err
		}
		added, err := c.addPage(found, claims, page, infraIDs)
		if err != nil {
			return nil, err
		}
		if count += added; n >= maxPages || count > maxMachines {
			return nil, unreachableErrorf(list, "the list has more pages or instances than allowed")
		}
		if page.NextPageToken == "" {
			break
		}
		query.Set("pageToken", page.NextPageToken)
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	if err := c.nameGroups(all, found, claims); err != nil {
		return nil, err
	}
	c.quotas.NoteExceeded(all, found, regionOf, c.readQuotas)
	return found, ctx.Err()
}

// filterOf returns a filter for the names of the clusters' instances, as one regular expression. An empty filter
// matches all instances.
func filterOf(infraIDs []string) string {
	var names []string
	for _, infraID := range infraIDs {
		if isResourceName(infraID) { // An invalid name has no instances, and could change the expression.
			names = append(names, infraID)
		}
	}
	slices.Sort(names)
	filter := fmt.Sprintf("name eq %q", "("+strings.Join(names, "|")+")-.*")
	if len(names) == 0 || len(filter) > maxFilterBytes {
		return ""
	}
	return filter
}

// addPage assigns the instances of a page to the wanted clusters, and returns the number of instances on the page.
func (c *projectAccount) addPage(found map[string][]actuator.Machine, claims groupClaims, page instancePage, infraIDs []string) (int, error) {
	if len(page.Unreachables) > 0 {
		return 0, unreachableErrorf(list, "some zones of the project do not respond, such as %.100q", page.Unreachables[0])
	}
	count := 0
	for scope, items := range page.Items {
		if items.Warning != nil && items.Warning.Code != emptyScope {
			return 0, unreachableErrorf(list, "the response for %.100q has the warning %.60q", scope, items.Warning.Code)
		}
		count += len(items.Instances)
		zone, isZone := strings.CutPrefix(scope, "zones/")
		for i := range items.Instances {
			name := machineName{zone, items.Instances[i].Name}
			if !isZone || !isResourceName(name.zone) || !isResourceName(name.name) {
				return 0, unreachableErrorf(list, "the response is not a valid Compute Engine response")
			}
			owner := ownerOf(&items.Instances[i], infraIDs)
			if owner == "" {
				continue
			}
			found[owner] = append(found[owner], c.describeMachine(name, owner, &items.Instances[i]))
			if metadata := items.Instances[i].Metadata; metadata.namesCreator() {
				claims[name.id()] = metadata.Fingerprint
			}
		}
	}
	return count, nil
}

// ownerOf returns the infraID of the wanted cluster that owns an instance, or "".
func ownerOf(vm *computeInstance, infraIDs []string) string {
	if owner := infraIDOf(vm); slices.Contains(infraIDs, owner) {
		return owner
	}
	return ""
}

// infraIDOf returns the infraID of the cluster that owns an instance, or "", independent of the wanted clusters. The
// infraID is that of an owned cluster label with which the name begins, or of the name if the instance has no cluster
// label. If there are several such labels, the longest infraID is used, because one cluster's infraID may begin with
// another's.
func infraIDOf(vm *computeInstance) string {
	isLabelled, owner := false, ""
	for key, value := range vm.Labels {
		infraID, isOne := cutClusterLabel(key)
		isLabelled = isLabelled || isOne
		if isOne && value == ownedLabel && strings.HasPrefix(vm.Name, infraID+"-") && len(infraID) > len(owner) {
			owner = infraID
		}
	}
	if !isLabelled {
		return machinenames.FindInfraID(vm.Name)
	}
	return owner
}

func cutClusterLabel(key string) (infraID string, isOne bool) {
	for _, prefix := range []string{clusterLabelPrefix, capgLabelPrefix} {
		if infraID, isOne = strings.CutPrefix(key, prefix); isOne {
			return infraID, true
		}
	}
	return "", false
}

func (c *projectAccount) describeMachine(name machineName, owner string, vm *computeInstance) actuator.Machine {
	machine := actuator.Machine{
		ID: name.id(), Name: name.name, State: stateOf(vm.Status), Account: c.owner, Role: actuator.FindRole(maps.All(vm.Labels), owner, name.name),
	}
	for _, i := range vm.Interfaces {
		machine.Addresses = append(machine.Addresses, i.NetworkIP)
		for _, outside := range i.AccessConfigs {
			machine.Addresses = append(machine.Addresses, outside.NatIP)
		}
	}
	if !strings.Contains(c.project, ":") { // The DNS names of domain-scoped projects differ.
		machine.Addresses = append(machine.Addresses, name.name, name.name+".c."+c.project+".internal", name.name+"."+name.zone+".c."+c.project+".internal")
	}
	machine.Addresses = slices.DeleteFunc(machine.Addresses, func(address string) bool { return address == "" })
	machine.Addresses = machine.Addresses[:min(len(machine.Addresses), maxAddresses)]
	return machine
}

// stateOf converts a status. A TERMINATED instance is off and can be started again.
func stateOf(status string) actuator.MachineState {
	switch status {
	case "RUNNING":
		return actuator.Running
	case "STOPPING", "SUSPENDING", "PENDING_STOP", "DEPROVISIONING":
		return actuator.Stopping
	case "TERMINATED", "STOPPED", "SUSPENDED":
		return actuator.Stopped
	default:
		return actuator.Starting // Torpor waits if the status is PROVISIONING, STAGING, REPAIRING or unknown.
	}
}
