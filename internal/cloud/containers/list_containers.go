// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// maxContainers bounds one listing.
	maxContainers = 10_000
	maxNameBytes  = 255
	maxAddresses  = 64
)

// engineContainer is a container in a listing, as far as Torpor reads it.
type engineContainer struct {
	ID              string            `json:"Id"`
	Names           []string          `json:"Names"`
	State           string            `json:"State"`
	Labels          map[string]string `json:"Labels"`
	NetworkSettings struct {
		Networks map[string]*struct {
			IPAddress         string `json:"IPAddress"`
			GlobalIPv6Address string `json:"GlobalIPv6Address"`
		} `json:"Networks"`
	} `json:"NetworkSettings"`
}

// ListMachines implements rest.OneByOneAccount. The API gives all of them at once, without pages; its filters find labels that must all
// be there, so that one for each cluster would be a call for each.
func (c *engineClient) ListMachines(ctx context.Context, selectors []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(selectors, "") {
		return nil, actuator.Errorf(actuator.Other, "nothing says what the containers are found by: set spec.clusterMetadata.infraID, or spec.platform.containers.namePrefix")
	}
	found := map[string][]actuator.Machine{}
	err := c.call(ctx, list, func(ctx context.Context) error {
		return c.send(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"1"}}, func(body io.Reader) error {
			return readContainers(body, func(e *engineContainer) {
				for _, selector := range selectors {
					if e.isSelectedBy(selector) {
						found[selector] = append(found[selector], c.machineOf(e, selector))
					}
				}
			})
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

// readContainers reads a listing one container at a time, so that a long one takes no memory.
func readContainers(body io.Reader, use func(*engineContainer)) error {
	decoder := json.NewDecoder(body)
	if opening, err := decoder.Token(); err != nil || opening != json.Delim('[') {
		return notAnEngine(err)
	}
	for count := 0; decoder.More(); count++ {
		var e engineContainer
		if err := decoder.Decode(&e); err != nil {
			return notAnEngine(err)
		}
		switch {
		case count == maxContainers:
			return errListTooLong
		case !isContainerID(e.ID):
			return errNotAnEngine
		case e.State == "removing", e.State == "dead": // It is on its way out, or has got stuck there.
		default:
			use(&e)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return notAnEngine(err) // A listing that is cut off would make running containers look gone.
	}
	return nil
}

// isContainerID keeps ids from being paths.
func isContainerID(id string) bool { return regexp.MustCompile(`^[0-9a-f]{12,64}$`).MatchString(id) }

// isSelectedBy reports whether a container is one of those that are found by LABEL=VALUE, or by the beginning of their names, which hold no
// equals sign.
func (e *engineContainer) isSelectedBy(selector string) bool {
	if label, value, isLabel := strings.Cut(selector, "="); isLabel {
		found, hasLabel := e.Labels[label]
		return hasLabel && found == value
	}
	return slices.ContainsFunc(e.Names, func(name string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "/"), selector) })
}

// nameIn returns what a selector says of the names of a cluster's containers: kind and k3d have the cluster's own name in the label.
func nameIn(selector string) string {
	if _, value, isLabel := strings.Cut(selector, "="); isLabel {
		return value
	}
	return selector
}

func (c *engineClient) machineOf(e *engineContainer, selector string) actuator.Machine {
	m := actuator.Machine{ID: e.ID, Account: c.owner, Addresses: e.addresses()}
	if len(e.Names) > 0 {
		name := strings.ToValidUTF8(strings.TrimPrefix(e.Names[0], "/"), "")
		m.Name = name[:min(len(name), maxNameBytes)]
	}
	m.Role = actuator.FindRole(maps.All(e.Labels), nameIn(selector), m.Name)
	m.State, m.HoldsCapacity = stateOf(e.State)
	m.State = c.stops.EffectiveState(e.ID, m.State)
	return m
}

// stateOf returns what a container does, and whether it is off and keeps its memory.
func stateOf(state string) (machine actuator.MachineState, holdsCapacity bool) {
	switch state {
	case "running":
		return actuator.Running, false
	case "stopping": // Podman's; Docker shows such a container as running.
		return actuator.Stopping, false
	case "paused":
		return actuator.Stopped, true
	case "created", "configured", "initialized", "exited", "stopped":
		return actuator.Stopped, false
	default:
		return actuator.Starting, false // It restarts, or is what no engine had so far: neither on nor off, and waited for.
	}
}

// addresses returns a container's addresses in all its networks.
func (e *engineContainer) addresses() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(e.NetworkSettings.Networks)) {
		network := e.NetworkSettings.Networks[name]
		if network == nil {
			continue
		}
		for _, address := range []string{network.IPAddress, network.GlobalIPv6Address} {
			if address != "" && len(address) <= maxNameBytes && len(all) < maxAddresses {
				all = append(all, address)
			}
		}
	}
	return all
}

// notAnEngine keeps what says that the connection or the budget was at fault.
func notAnEngine(err error) error { return errors.Join(errNotAnEngine, err) }
