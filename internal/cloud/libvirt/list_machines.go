// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/machinenames"
	"github.com/torpor-dev/torpor/internal/cloud/orders"
)

// listTimeoutFactor is how many times the timeout of one call all calls of a listing together may take.
const listTimeoutFactor = 3

// errListTooLong means that a host lists more domains than are read.
var errListTooLong = errors.New("the list has more domains than a host may have")

// listMachines returns the domains of clusters. A host has few domains, and one list is for any number of clusters; what a domain claims
// and does takes a call each.
func (c *connection) listMachines(ctx context.Context, infraIDs []string, pending *pendingShutdowns) (map[string][]actuator.Machine, error) {
	host, err := c.readHostname(ctx)
	if err != nil {
		return nil, err
	}
	domains, err := c.listDomains(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	found := map[string][]actuator.Machine{}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(orders.ParallelCalls)
	for _, d := range domains {
		work.Go(func() error {
			infraID, machine, err := c.readMachine(ctx, d, infraIDs, pending)
			if hasCode(err, codeNoDomain) {
				return nil // It has gone for good since it was listed.
			}
			if err != nil || infraID == "" {
				return err
			}
			machine.Account = c.accountName(host)
			mu.Lock()
			defer mu.Unlock()
			found[infraID] = append(found[infraID], machine)
			return nil
		})
	}
	// Every domain is read before anything is decided: a cluster without one of its machines would count as stopped while that one runs.
	if err := work.Wait(); err != nil {
		return nil, err
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found, nil
}

// accountName tells hosts apart. One has many addresses and one name; but a daemon that no administrator lists could say that it is any host.
func (c *connection) accountName(host string) string {
	if c.isTrusted {
		return "libvirt/" + host + "/" + c.driver
	}
	return "libvirt/" + c.place
}

// readMachine returns a domain as a machine of one of the clusters, and an empty infraID for one of none.
func (c *connection) readMachine(ctx context.Context, d domain, infraIDs []string, pending *pendingShutdowns) (string, actuator.Machine, error) {
	claim, isClaimed, err := c.readClaim(ctx, d)
	if err != nil {
		return "", actuator.Machine{}, err
	}
	infraID := findOwner(d.name, claim, isClaimed, infraIDs)
	if infraID == "" {
		return "", actuator.Machine{}, nil
	}
	state, err := c.readState(ctx, d)
	if err != nil {
		return "", actuator.Machine{}, err
	}
	machine := actuator.Machine{ID: d.String(), Name: strings.ToValidUTF8(d.name, ""), State: machineStateOf(state)}
	machine.Role = actuator.FindRole(nil, infraID, d.name)
	machine.HoldsCapacity = state.state == stateCrashed || state.state == statePMSuspended
	if machine.State == actuator.Running && pending.isPending(c.place, d) {
		machine.State = actuator.Stopping
	}
	return infraID, machine, nil
}

// findOwner returns which of the clusters a domain is of: the one that its metadata name, or its name if it has none. Which others are asked for
// does not matter.
func findOwner(name, claim string, isClaimed bool, infraIDs []string) string {
	if !isClaimed {
		claim = machinenames.FindInfraID(name)
	}
	if claim == "" || !slices.Contains(infraIDs, claim) {
		return ""
	}
	return claim
}

// machineStateOf returns what a machine does. A guest that was asked to turn off still counts as running here.
func machineStateOf(s domainState) actuator.MachineState {
	switch {
	case s.state == stateShuttingDown, s == domainState{statePaused, pausedShuttingDown}:
		return actuator.Stopping
	case s == domainState{statePaused, pausedStartingUp}:
		return actuator.Starting
	case s.state == stateShutOff, s.state == stateCrashed, s.state == statePMSuspended:
		return actuator.Stopped // The last two keep their memory, and are no machine that works.
	default:
		return actuator.Running // A paused domain keeps its memory, and what is unknown may work.
	}
}
