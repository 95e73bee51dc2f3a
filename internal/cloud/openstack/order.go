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

// stopServer stops one server. The API refuses what it has done already, so that the server is read before a refusal counts.
func (c *projectClient) stopServer(ctx context.Context, id string) error {
	return c.call(ctx, stop, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		err := servers.Stop(ctx, compute, id).ExtractErr()
		if !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return err
		}
		return acceptState(ctx, compute, id, err, actuator.Stopped, actuator.Stopping)
	})
}

// startServer starts one server, whatever turned it off.
func (c *projectClient) startServer(ctx context.Context, id string) error {
	return c.call(ctx, start, c.timeout, func(ctx context.Context, compute *gophercloud.ServiceClient) error {
		err := servers.Start(ctx, compute, id).ExtractErr()
		if !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return err
		}
		found, getErr := servers.Get(ctx, compute, id).Extract()
		if getErr != nil {
			return getErr
		}
		switch {
		case found.TaskState == "" && slices.Contains([]string{"SHELVED", "SHELVED_OFFLOADED"}, found.Status):
			return servers.Unshelve(ctx, compute, id, servers.UnshelveOpts{}).ExtractErr()
		case found.TaskState == "" && found.Status == "SUSPENDED":
			return servers.Resume(ctx, compute, id).ExtractErr()
		}
		return acceptState(ctx, compute, id, err, actuator.Running, actuator.Starting)
	})
}

// acceptState returns no error for a server that is, or becomes, what was asked for.
func acceptState(ctx context.Context, compute *gophercloud.ServiceClient, id string, refusal error, accepted ...actuator.MachineState) error {
	found, err := servers.Get(ctx, compute, id).Extract()
	switch {
	case err != nil:
		return err
	case slices.Contains(accepted, stateOf(found)):
		return nil
	case isLocked(refusal):
		return &orders.RefusedError{Class: actuator.Other, Code: "locked", Message: "the server is locked; unlock it: openstack server unlock"}
	default:
		return &orders.RefusedError{Class: actuator.WrongState, Code: "conflict", Message: "its state does not allow that now: " + describeState(found)}
	}
}
