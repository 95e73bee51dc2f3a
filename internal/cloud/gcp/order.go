// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// Operations, with their names in messages.
const (
	login = "login"
	list  = "instances.list"
	stop  = "instances.stop"
	start = "instances.start"
)

// takenOrder is the state of an accepted order. Google Cloud detects missing capacity only after it has accepted the
// order.
type takenOrder struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  *struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	} `json:"error"`
}

func (o *takenOrder) hasEnded() bool { return o.Status == "DONE" }

// StopMachine implements rest.OneByOneAccount.
func (c *projectAccount) StopMachine(ctx context.Context, id string) error {
	m, err := readMachineName(id)
	if err != nil {
		return err
	}
	c.starts.ForgetMachine(m.id())
	query := url.Values{}
	if c.discardsLocalDisks != nil {
		query.Set("discardLocalSsd", strconv.FormatBool(*c.discardsLocalDisks))
	}
	var taken takenOrder
	err = c.call(ctx, computeRequest{operation: stop, method: http.MethodPost, path: m.path() + "/stop", query: query}, &taken)
	if err == nil {
		return c.explainOrder(stop, &taken)
	}
	return c.acceptState(ctx, m, stop, err, actuator.Stopped, actuator.Stopping)
}

// readMachineName parses the ID in an order. It returns a *onebyone.RefusedError for an invalid ID.
func readMachineName(id string) (machineName, error) {
	m, ok := parseMachineName(id)
	if !ok {
		return machineName{}, &onebyone.RefusedError{Class: actuator.NotFound, Code: "notFound", Message: "expected an id such as ZONE/NAME"}
	}
	return m, nil
}

// StartMachine implements rest.OneByOneAccount, regardless of how the instance was turned off. If an earlier start is
// pending, StartMachine sends no other start, and returns the error of the earlier one, if any.
func (c *projectAccount) StartMachine(ctx context.Context, id string) error {
	m, err := readMachineName(id)
	if err != nil {
		return err
	}
	if earlier := c.starts.Find(m.id()); earlier != "" {
		return c.followStart(ctx, m, earlier)
	}
	var taken takenOrder
	err = c.call(ctx, computeRequest{operation: start, method: http.MethodPost, path: m.path() + "/start"}, &taken)
	if hasClass(err, actuator.WrongState) {
		found, getErr := c.readInstance(ctx, m, start)
		if getErr != nil {
			return getErr
		}
		if found.Status == "SUSPENDED" {
			err = c.call(ctx, computeRequest{operation: start, method: http.MethodPost, path: m.path() + "/resume"}, &taken)
		}
	}
	switch {
	case err != nil:
		return c.acceptState(ctx, m, start, err, actuator.Running, actuator.Starting)
	case taken.hasEnded():
		return c.explainOrder(start, &taken)
	case !isOrderName(taken.Name):
		return unreachableErrorf(start, "the response is not a valid Compute Engine response")
	}
	c.starts.Remember(m.id(), taken.Name)
	return c.followStart(ctx, m, taken.Name)
}

// followStart reads the result of a start once.
func (c *projectAccount) followStart(ctx context.Context, m machineName, name string) error {
	var taken takenOrder
	err := c.call(ctx, computeRequest{operation: start, method: http.MethodGet, path: "/zones/" + m.zone + "/operations/" + name}, &taken)
	switch {
	case hasClass(err, actuator.NotFound), hasClass(err, actuator.PermissionDenied):
		// The order is too old, or the right to read its result is missing. The instance itself shows whether it has
		// started.
		c.starts.ForgetMachine(m.id())
		return nil
	case err != nil:
		return err
	case !taken.hasEnded():
		return nil
	}
	c.starts.ForgetMachine(m.id())
	return c.explainOrder(start, &taken)
}

func (c *projectAccount) readInstance(ctx context.Context, m machineName, operation string) (computeInstance, error) {
	var found computeInstance
	err := c.call(ctx, computeRequest{operation: operation, method: http.MethodGet, path: m.path(), query: url.Values{"fields": {"name,status"}}}, &found)
	return found, err
}

// acceptState returns nil instead of a WrongState refusal if the instance is already in one of the accepted states.
// Such a refusal may only mean that another order is in progress.
func (c *projectAccount) acceptState(ctx context.Context, m machineName, operation string, refusal error, accepted ...actuator.MachineState) error {
	if !hasClass(refusal, actuator.WrongState) {
		return refusal
	}
	found, err := c.readInstance(ctx, m, operation)
	switch {
	case err != nil:
		return err
	case slices.Contains(accepted, stateOf(found.Status)):
		return nil
	default:
		return refusal
	}
}

// hasClass reports whether an error of the account or of one machine has a class.
func hasClass(err error, class actuator.ErrorClass) bool {
	if refused, ok := errors.AsType[*onebyone.RefusedError](err); ok {
		return refused.Class == class
	}
	return err != nil && actuator.ClassOf(err) == class
}

// isOrderName reports whether a text can be the name of an order, because the name becomes part of a URL.
func isOrderName(text string) bool {
	return regexp.MustCompile(`^[-a-zA-Z0-9]{1,128}$`).MatchString(text)
}
