// SPDX-License-Identifier: Apache-2.0

package docker

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
	// maxContainers limits one listing.
	maxContainers = 10_000
	maxNameBytes  = 255
	maxAddresses  = 64
	// serviceLabel is the label of a container that is a task of a Swarm service. Swarm replaces a task that stops:
	// https://docs.docker.com/engine/swarm/how-swarm-mode-works/services/
	serviceLabel = "com.docker.swarm.service.name"
)

// engineContainer is the part of a container in a listing that Torpor reads.
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

// ListMachines implements rest.OneByOneAccount. The API lists all containers in one response, without pages. A filter
// matches only containers that have all given labels, so filtering would need one call for each cluster.
func (c *engineClient) ListMachines(ctx context.Context, selectors []string) (map[string][]actuator.Machine, error) {
	if slices.Contains(selectors, "") {
		return nil, actuator.Errorf(actuator.Other, "nothing identifies the containers: set spec.clusterMetadata.infraID, or spec.platform.containers.namePrefix")
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

// readContainers decodes a listing one container at a time, so a long listing needs little memory.
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
		case e.State == "removing", e.State == "dead": // The container is being removed, or its removal is stuck.
		default:
			use(&e)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return notAnEngine(err) // In a truncated listing, running containers would seem removed.
	}
	return nil
}

// isContainerID rejects IDs that could be paths.
func isContainerID(id string) bool { return regexp.MustCompile(`^[0-9a-f]{12,64}$`).MatchString(id) }

// isSelectedBy reports whether a container matches a selector, which is LABEL=VALUE or the prefix of a name. Names
// cannot contain an equals sign.
func (e *engineContainer) isSelectedBy(selector string) bool {
	if label, value, isLabel := strings.Cut(selector, "="); isLabel {
		found, hasLabel := e.Labels[label]
		return hasLabel && found == value
	}
	return slices.ContainsFunc(e.Names, func(name string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "/"), selector) })
}

// nameIn returns the cluster's name: the value of the label, or the prefix of the names. FindRole skips the cluster's
// name at the beginning of a container's name, because the cluster's name may contain the name of a role. The
// containers of k3d have names that begin with k3d-, but their labels contain the role.
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
	service := e.Labels[serviceLabel]
	m.Group = strings.ToValidUTF8(service[:min(len(service), maxNameBytes)], "")
	m.State, m.HoldsCapacity = stateOf(e.State)
	m.State = c.stops.EffectiveState(e.ID, m.State)
	return m
}

// stateOf returns the state of a container, and whether the container is off but still occupies memory.
func stateOf(state string) (machine actuator.MachineState, holdsCapacity bool) {
	switch state {
	case "running":
		return actuator.Running, false
	case "stopping": // Only Podman has this state; Docker reports such a container as running.
		return actuator.Stopping, false
	case "paused":
		return actuator.Stopped, true
	case "created", "configured", "initialized", "exited", "stopped":
		return actuator.Stopped, false
	default:
		return actuator.Starting, false // Restarting and unknown states count as Starting, so Torpor waits.
	}
}

// addresses returns at most maxAddresses of a container's addresses, from all its networks.
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

// notAnEngine returns errNotAnEngine joined with err, because err may report that the connection failed or a limit was
// exceeded.
func notAnEngine(err error) error { return errors.Join(errNotAnEngine, err) }
