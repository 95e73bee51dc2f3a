// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// Operations, with their names in messages.
const (
	login = "login"
	list  = "list instances"
	stop  = "stop instances"
	start = "start instances"
)

// instanceAction is an order for an instance.
type instanceAction struct {
	Type string `json:"type"`
}

// errNoInstanceID is the error for an order with an invalid instance ID. IDs become parts of URLs.
var errNoInstanceID = &onebyone.RefusedError{Class: actuator.NotFound, Code: "not_found", Message: "expected the ID of an instance, found an invalid ID"}

// StopMachine implements cloudrest.OneByOneAccount.
func (c *regionAccount) StopMachine(ctx context.Context, id string) error {
	if !isInstanceID(id) {
		return errNoInstanceID
	}
	c.starts.ForgetMachine(id)
	err := c.order(ctx, stop, id, "stop")
	return c.acceptState(ctx, id, stop, err, actuator.Stopped, actuator.Stopping)
}

// StartMachine implements cloudrest.OneByOneAccount. If an earlier start was accepted, StartMachine returns its result,
// and orders another start only if the instance is still off for no known reason.
func (c *regionAccount) StartMachine(ctx context.Context, id string) error {
	if !isInstanceID(id) {
		return errNoInstanceID
	}
	if c.starts.Find(id) != "" {
		if isOver, err := c.followStart(ctx, id); isOver || err != nil {
			return err
		}
	}
	if err := c.order(ctx, start, id, "start"); err != nil {
		return c.acceptState(ctx, id, start, err, actuator.Running, actuator.Starting)
	}
	c.starts.Remember(id, "start")
	_, err := c.followStart(ctx, id)
	return err
}

func (c *regionAccount) order(ctx context.Context, operation, id, verb string) error {
	return c.call(ctx, vpcRequest{operation: operation, method: http.MethodPost, path: "/instances/" + id + "/actions", body: instanceAction{verb}}, nil)
}

// followStart reads the result of a start once. It reports whether the instance is no longer off, or the start is known
// to have failed. IBM Cloud first accepts a start, and later records why the instance did not start.
func (c *regionAccount) followStart(ctx context.Context, id string) (isOver bool, err error) {
	found, err := c.readInstance(ctx, id, start)
	if err != nil {
		return false, err
	}
	if stateOf(found.Status) != actuator.Stopped {
		return true, nil
	}
	for _, reason := range found.StatusReasons {
		if strings.HasPrefix(reason.Code, "cannot_start") {
			c.starts.ForgetMachine(id)
			return true, &onebyone.RefusedError{
				Class: classOfReason(reason.Code), Code: cloudrest.Scrub(reason.Code, c.secret), Message: cloudrest.Scrub(reason.Message, c.secret),
			}
		}
	}
	return false, nil
}

func (c *regionAccount) readInstance(ctx context.Context, id, operation string) (vpcInstance, error) {
	var found vpcInstance
	err := c.call(ctx, vpcRequest{operation: operation, method: http.MethodGet, path: "/instances/" + id}, &found)
	return found, err
}

// acceptState returns nil instead of a WrongState refusal if the instance is already in one of the accepted states. IBM
// Cloud refuses to stop stopped instances.
func (c *regionAccount) acceptState(ctx context.Context, id, operation string, refusal error, accepted ...actuator.MachineState) error {
	refused, ok := errors.AsType[*onebyone.RefusedError](refusal)
	if !ok || refused.Class != actuator.WrongState {
		return refusal
	}
	found, err := c.readInstance(ctx, id, operation)
	switch {
	case err != nil:
		return err
	case slices.Contains(accepted, stateOf(found.Status)):
		return nil
	default:
		return refusal
	}
}
