// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// Operations, with their names in messages.
const (
	list  = "list servers"
	stop  = "stop servers"
	start = "start servers"
)

// StopMachine implements rest.OneByOneAccount. It stops or shelves a server. The API refuses an order that has already
// taken effect, so the server is read before a conflict is reported.
func (c *projectClient) StopMachine(ctx context.Context, id string) error {
	c.unshelved.ForgetMachine(id)
	return c.call(ctx, stop, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		if c.shelves {
			return c.shelveServer(ctx, compute, id)
		}
		refusal := servers.Stop(ctx, compute, id).ExtractErr()
		return judgeConflict(ctx, compute, id, refusal, func(found *servers.Server) error {
			return c.acceptState(found, refusal, actuator.Stopped, actuator.Stopping)
		})
	})
}

// shelveServer shelves a server that is on, or that is off but still on its host. A failed server must be off before
// it can be shelved.
func (c *projectClient) shelveServer(ctx context.Context, compute *gophercloud.ServiceClient, id string) error {
	refusal := servers.Shelve(ctx, compute, id).ExtractErr()
	return judgeConflict(ctx, compute, id, refusal, func(found *servers.Server) error {
		if found.Status == "ERROR" && stateOf(found) == actuator.Running {
			return servers.Stop(ctx, compute, id).ExtractErr()
		}
		return c.acceptState(found, refusal, actuator.Stopped, actuator.Stopping)
	})
}

// StartMachine implements rest.OneByOneAccount, regardless of how the server was turned off.
func (c *projectClient) StartMachine(ctx context.Context, id string) error {
	return c.call(ctx, start, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		refusal := servers.Start(ctx, compute, id).ExtractErr()
		return judgeConflict(ctx, compute, id, refusal, func(found *servers.Server) error {
			switch {
			case found.TaskState == "" && slices.Contains([]string{"SHELVED", "SHELVED_OFFLOADED"}, found.Status):
				return c.unshelveServer(ctx, compute, id)
			case found.TaskState == "" && found.Status == "SUSPENDED":
				return servers.Resume(ctx, compute, id).ExtractErr()
			}
			return c.acceptState(found, refusal, actuator.Running, actuator.Starting)
		})
	})
}

// judgeConflict reads the server if the cloud refused an order because of its state, and calls judge. Any other error
// is returned unchanged.
func judgeConflict(ctx context.Context, compute *gophercloud.ServiceClient, id string, answer error, judge func(*servers.Server) error) error {
	if !gophercloud.ResponseCodeIs(answer, http.StatusConflict) {
		return answer
	}
	found, err := servers.Get(ctx, compute, id).Extract()
	if err != nil {
		return err
	}
	return judge(found)
}

// unshelveServer unshelves a server. The API accepts the order at once and does not report missing capacity. If
// capacity is missing, the cloud shelves the server again.
func (c *projectClient) unshelveServer(ctx context.Context, compute *gophercloud.ServiceClient, id string) error {
	if c.unshelved.Find(id) != "" {
		c.unshelved.ForgetMachine(id)
		return &onebyone.RefusedError{
			Class: actuator.NoCapacity, Code: "shelved again", Message: "the cloud accepted the order to unshelve the server but left it shelved: most likely the cloud has no capacity for the server",
		}
	}
	err := servers.Unshelve(ctx, compute, id, servers.UnshelveOpts{}).ExtractErr()
	if err == nil {
		c.unshelved.Remember(id, "unshelve")
	}
	return err
}

// wayOut returns the command that ends a state in which nova refuses to stop a server, if the state ends only with a
// command. It returns "" for other states:
// https://docs.openstack.org/api-ref/compute/#stop-server-os-stop-action
func wayOut(status string) string {
	switch status {
	case "PAUSED":
		return "openstack server unpause"
	case "RESCUE":
		return "openstack server unrescue"
	case "VERIFY_RESIZE":
		return "openstack server resize confirm"
	default:
		return ""
	}
}

// acceptState returns nil if the server is already in an accepted state and need not free capacity, and otherwise a
// *onebyone.RefusedError.
func (c *projectClient) acceptState(found *servers.Server, refusal error, accepted ...actuator.MachineState) error {
	switch {
	case slices.Contains(accepted, stateOf(found)) && !c.holdsCapacity(found):
		return nil
	case isLocked(refusal):
		return &onebyone.RefusedError{Class: actuator.Other, Code: "locked", Message: "the server is locked; unlock it: openstack server unlock"}
	case found.TaskState == "" && wayOut(found.Status) != "":
		status := strings.ToLower(found.Status)
		return &onebyone.RefusedError{
			Class: actuator.Other, Code: status, Message: "the server is " + status + " and stays so until you run: " + wayOut(found.Status),
		}
	default:
		return &onebyone.RefusedError{Class: actuator.WrongState, Code: "conflict", Message: "the state of the server does not allow the order now: " + describeState(found)}
	}
}
