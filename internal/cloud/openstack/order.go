// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"net/http"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/orders"
)

// The operations, as messages name them.
const (
	list  = "list servers"
	stop  = "stop servers"
	start = "start servers"
)

// stopServer stops or shelves one server. The API refuses what it has done already, so that the server is read before a refusal counts.
func (c *projectClient) stopServer(ctx context.Context, id string) error {
	c.unshelved.ForgetMachine(id)
	return c.call(ctx, stop, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		if c.shelves {
			return c.shelveServer(ctx, compute, id)
		}
		err := servers.Stop(ctx, compute, id).ExtractErr()
		if !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return err
		}
		found, getErr := servers.Get(ctx, compute, id).Extract()
		if getErr != nil {
			return getErr
		}
		return c.acceptState(found, err, actuator.Stopped, actuator.Stopping)
	})
}

// shelveServer shelves a server that is on, or off and at its host. One that has failed cannot be shelved before it is off.
func (c *projectClient) shelveServer(ctx context.Context, compute *gophercloud.ServiceClient, id string) error {
	err := servers.Shelve(ctx, compute, id).ExtractErr()
	if !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		return err
	}
	found, getErr := servers.Get(ctx, compute, id).Extract()
	switch {
	case getErr != nil:
		return getErr
	case found.Status == "ERROR" && stateOf(found) == actuator.Running:
		return servers.Stop(ctx, compute, id).ExtractErr()
	default:
		return c.acceptState(found, err, actuator.Stopped, actuator.Stopping)
	}
}

// startServer starts one server, whatever turned it off.
func (c *projectClient) startServer(ctx context.Context, id string) error {
	return c.call(ctx, start, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		err := servers.Start(ctx, compute, id).ExtractErr()
		if !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return err
		}
		found, getErr := servers.Get(ctx, compute, id).Extract()
		switch {
		case getErr != nil:
			return getErr
		case found.TaskState == "" && slices.Contains([]string{"SHELVED", "SHELVED_OFFLOADED"}, found.Status):
			return c.unshelveServer(ctx, compute, id)
		case found.TaskState == "" && found.Status == "SUSPENDED":
			return servers.Resume(ctx, compute, id).ExtractErr()
		}
		return c.acceptState(found, err, actuator.Running, actuator.Starting)
	})
}

// unshelveServer unshelves a server. The API takes that at once and tells nobody when there was no room: the server is shelved as before.
func (c *projectClient) unshelveServer(ctx context.Context, compute *gophercloud.ServiceClient, id string) error {
	if c.unshelved.Find(id) != "" {
		c.unshelved.ForgetMachine(id)
		return &orders.RefusedError{
			Class: actuator.NoCapacity, Code: "shelved again", Message: "the cloud took the order to unshelve the server and has left it shelved: it has no room for it, most likely",
		}
	}
	err := servers.Unshelve(ctx, compute, id, servers.UnshelveOpts{}).ExtractErr()
	if err == nil {
		c.unshelved.Remember(id, "unshelve")
	}
	return err
}

// acceptState returns no error for a server that is, or becomes, what was asked for.
func (c *projectClient) acceptState(found *servers.Server, refusal error, accepted ...actuator.MachineState) error {
	switch {
	case slices.Contains(accepted, stateOf(found)) && !c.holdsCapacity(found):
		return nil
	case isLocked(refusal):
		return &orders.RefusedError{Class: actuator.Other, Code: "locked", Message: "the server is locked; unlock it: openstack server unlock"}
	default:
		return &orders.RefusedError{Class: actuator.WrongState, Code: "conflict", Message: "its state does not allow that now: " + describeState(found)}
	}
}
