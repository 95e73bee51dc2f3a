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
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// listTimeoutFactor limits the time for all calls of a listing, as a multiple of the timeout of one call.
const listTimeoutFactor = 3

// errListTooLong means that a host lists more domains than Torpor reads.
var errListTooLong = errors.New("the list has more domains than allowed")

// listMachines returns the domains of clusters. A host has few domains, so one list serves any number of clusters. The
// owner and the state of each domain need separate calls.
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
	work.SetLimit(onebyone.ParallelCalls)
	for _, d := range domains {
		work.Go(func() error {
			infraID, machine, err := c.readMachine(ctx, d, infraIDs, pending)
			if hasCode(err, codeNoDomain) {
				return nil // The domain was removed after it was listed.
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
	// All domains are read before a decision. A cluster with a missing machine would count as stopped while that
	// machine runs.
	if err := work.Wait(); err != nil {
		return nil, err
	}
	for _, machines := range found {
		slices.SortFunc(machines, func(a, b actuator.Machine) int { return cmp.Compare(a.ID, b.ID) })
	}
	return found, nil
}

// accountName distinguishes hosts. A host may have many addresses but has one name. An unlisted daemon could claim
// any name, so its address is used instead.
func (c *connection) accountName(host string) string {
	if c.isTrusted {
		return "libvirt/" + host + "/" + c.driver
	}
	return "libvirt/" + c.place
}

// readMachine returns a domain as a machine of one of the clusters. The infraID is empty if the domain belongs to
// none of the clusters.
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

// findOwner returns the infraID of the wanted cluster that owns a domain, or "". The owner is found by the infraID in
// the domain's metadata or, without such metadata, by the domain's name. The result for one cluster does not depend on
// the other clusters in infraIDs.
func findOwner(name, claim string, isClaimed bool, infraIDs []string) string {
	if !isClaimed {
		claim = machinenames.FindInfraID(name)
	}
	if claim == "" || !slices.Contains(infraIDs, claim) {
		return ""
	}
	return claim
}

// machineStateOf converts a domain's state. It returns Running for a guest that was requested to turn off, because
// libvirt reports such a guest as running; readMachine replaces that with Stopping.
func machineStateOf(s domainState) actuator.MachineState {
	switch {
	case s.state == stateShuttingDown, s == domainState{statePaused, pausedShuttingDown}:
		return actuator.Stopping
	case s == domainState{statePaused, pausedStartingUp}:
		return actuator.Starting
	case s.state == stateShutOff, s.state == stateCrashed, s.state == statePMSuspended:
		return actuator.Stopped // A crashed or suspended domain occupies memory, but does not run.
	default:
		return actuator.Running // A paused domain occupies memory, and a domain in an unknown state may run.
	}
}
