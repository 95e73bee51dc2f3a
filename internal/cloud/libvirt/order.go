// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// Operations, with their names in messages.
const (
	list  = "list domains"
	stop  = "stop domains"
	start = "start domains"
)

// errPausedBriefly is returned for an order to a guest that the daemon has paused for a moment. A paused guest accepts
// no orders.
var errPausedBriefly = &onebyone.RefusedError{
	Class: actuator.WrongState, Code: "paused for a moment", Message: "the daemon has paused the guest to start, move, save or copy it, and will resume it",
}

// requirePersistence returns an error if one of the domains would disappear once it is off.
func (c *connection) requirePersistence(ctx context.Context, ids []string) error {
	var mu sync.Mutex
	var transient []string
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(onebyone.ParallelCalls)
	for _, id := range ids {
		work.Go(func() error {
			d, err := c.findDomain(ctx, id)
			isPersistent := true
			if err == nil {
				isPersistent, err = c.isPersistent(ctx, d)
			}
			if hasCode(err, codeNoDomain) {
				return nil // The order to stop the missing domain will report this error.
			}
			if err == nil && !isPersistent {
				mu.Lock()
				defer mu.Unlock()
				transient = append(transient, id)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil || len(transient) == 0 {
		return err
	}
	slices.Sort(transient)
	return actuator.Errorf(actuator.Other, "%s: transient domains disappear once they are off, so no domain is stopped: define them (virsh define) or remove them from the cluster: %s",
		stop, onebyone.JoinIDs(transient))
}

// stopDomain turns a domain off. Guests are requested to turn off, and their power is never cut. Only a crashed guest
// is destroyed, because it cannot react.
func (c *connection) stopDomain(ctx context.Context, id string, pending *pendingShutdowns) error {
	d, found, err := c.lookAt(ctx, id)
	if err != nil {
		return err
	}
	switch found.state {
	case stateShutOff, stateShuttingDown:
		return nil
	case stateCrashed:
		return c.ignoreAlreadyOff(ctx, d, c.destroy(ctx, d))
	case statePaused:
		if found.reason == pausedShuttingDown {
			return nil
		}
		if found.isPausedBriefly() {
			return errPausedBriefly
		}
		return &onebyone.RefusedError{Class: actuator.Other, Code: "paused", Message: "a paused guest cannot turn itself off, and its memory would be lost if it were turned off; resume it (virsh resume) or turn it off (virsh destroy)"}
	case statePMSuspended:
		// A suspended guest receives the power button only after it has woken up.
		if err := c.wakeUp(ctx, d); err != nil {
			return err
		}
	}
	if err := c.shutDown(ctx, d); err != nil {
		return c.ignoreAlreadyOff(ctx, d, err)
	}
	if pending.remember(c.place, d) {
		return &onebyone.RefusedError{Class: actuator.Other, Code: "no reaction", Message: "the guest was asked to turn off minutes ago and still runs; the guest needs an ACPI daemon or the guest agent; Torpor never cuts the power, but virsh destroy does"}
	}
	return nil
}

// startDomain turns a domain on, regardless of how it was turned off.
func (c *connection) startDomain(ctx context.Context, id string, pending *pendingShutdowns) error {
	uuid, ok := parseUUID(id)
	if !ok {
		return errNoUUID()
	}
	refusal := c.create(ctx, domain{name: id, uuid: uuid})
	if !mayBeSoAlready(refusal) {
		return refusal
	}
	d, found, err := c.lookAt(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case found.state == stateShutOff:
		return refusal
	case found.state == stateCrashed:
		if err := c.destroy(ctx, d); err != nil {
			return err
		}
		return c.create(ctx, d)
	case found.state == statePMSuspended:
		return c.wakeUp(ctx, d)
	case machineStateOf(found) == actuator.Stopping, pending.isPending(c.place, d):
		return &onebyone.RefusedError{Class: actuator.WrongState, Code: "turning off", Message: "the guest is turning off, and can be started once it is off"}
	case found.state == statePaused && found.reason == pausedStartingUp:
		return nil
	case found.isPausedBriefly():
		return errPausedBriefly
	case found.state == statePaused:
		return &onebyone.RefusedError{Class: actuator.Other, Code: "paused", Message: "the guest is paused; resume it: virsh resume"}
	default:
		return nil // The domain already runs.
	}
}

// mayBeSoAlready reports whether an error may mean that the domain already has the wanted state. The test driver
// reports this only in the message.
func mayBeSoAlready(err error) bool {
	said, ok := errors.AsType[*daemonError](err)
	return ok && (said.code == codeOperationInvalid || strings.HasSuffix(said.message, "already running") || strings.HasSuffix(said.message, "not running"))
}

func (c *connection) lookAt(ctx context.Context, id string) (domain, domainState, error) {
	d, err := c.findDomain(ctx, id)
	if err != nil {
		return domain{}, domainState{}, err
	}
	found, err := c.readState(ctx, d)
	return d, found, err
}

// ignoreAlreadyOff returns no error for a domain that another client has just turned off.
func (c *connection) ignoreAlreadyOff(ctx context.Context, d domain, refusal error) error {
	if !mayBeSoAlready(refusal) {
		return refusal
	}
	found, err := c.findDomain(ctx, d.String())
	switch {
	case err != nil:
		return err
	case found.id == inactiveDomainID:
		return nil
	default:
		return refusal
	}
}
