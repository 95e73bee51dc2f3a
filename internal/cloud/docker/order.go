// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
)

// Operations, with their names in messages.
const (
	list  = "list containers"
	stop  = "stop containers"
	start = "start containers"
)

const (
	// stopGrace is how long a container's processes may take to exit before the engine kills them. The processes of a
	// node terminate its Pods first.
	stopGrace = 30 * time.Second
	// stopMargin is the additional time that the engine may take.
	stopMargin = 10 * time.Second
)

// errStopGoesOn means that the order was sent, and that the engine did not respond within Options.StopPatience.
var errStopGoesOn = errors.New("the engine is still stopping the container")

// StopMachine implements rest.OneByOneAccount.
func (c *engineClient) StopMachine(ctx context.Context, id string) error {
	return c.call(ctx, stop, func(ctx context.Context) error {
		refusal := c.sendStop(ctx, id)
		if !isAboutState(refusal) {
			return refusal
		}
		state, err := c.readState(ctx, id)
		switch {
		case err != nil:
			return err
		case state == "paused": // Podman does not stop a paused container.
			if err := c.send(ctx, http.MethodPost, pathOf(id, "unpause"), nil, nil); err != nil {
				return err
			}
			return c.sendStop(ctx, id)
		}
		if machine, _ := stateOf(state); machine == actuator.Stopped || machine == actuator.Stopping {
			return nil
		}
		return refusal
	})
}

// sendStop orders a stop, and waits for the response for at most Options.StopPatience. The engine responds once the
// container is off, which may take the whole grace period. A client that disconnects earlier does not cancel the stop.
func (c *engineClient) sendStop(ctx context.Context, id string) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			time.AfterFunc(c.patience, func() { cancel(errStopGoesOn) })
		}
	}})
	err := c.send(traced, http.MethodPost, pathOf(id, "stop"), url.Values{"t": {strconv.Itoa(int(stopGrace.Seconds()))}}, nil)
	_, isRefused := errors.AsType[*answerError](err)
	if err == nil || isRefused || ctx.Err() != nil || !errors.Is(context.Cause(limited), errStopGoesOn) {
		return err
	}
	c.stops.Remember(id)
	return nil
}

// StartMachine implements rest.OneByOneAccount. It also unpauses a paused container.
func (c *engineClient) StartMachine(ctx context.Context, id string) error {
	return c.call(ctx, start, func(ctx context.Context) error {
		if c.stops.IsPending(id) {
			state, err := c.readState(ctx, id)
			if err != nil {
				return err
			}
			if state == "running" || state == "stopping" {
				return &onebyone.RefusedError{Class: actuator.WrongState, Code: "stopping", Message: "the container is stopping, and is started once it has stopped"}
			}
		}
		c.stops.ForgetMachine(id)
		refusal := c.send(ctx, http.MethodPost, pathOf(id, "start"), nil, nil)
		if !isAboutState(refusal) || isPortTaken(refusal) {
			return refusal
		}
		state, err := c.readState(ctx, id)
		switch {
		case err != nil:
			return err
		case state == "paused":
			return c.send(ctx, http.MethodPost, pathOf(id, "unpause"), nil, nil)
		case state == "running":
			return nil
		default:
			return refusal
		}
	})
}

func (c *engineClient) readState(ctx context.Context, id string) (string, error) {
	var found struct {
		State struct{ Status string }
	}
	err := c.send(ctx, http.MethodGet, pathOf(id, "json"), nil, func(body io.Reader) error {
		if err := json.NewDecoder(body).Decode(&found); err != nil {
			return notAnEngine(err)
		}
		return nil
	})
	return found.State.Status, err
}

func pathOf(id, what string) string { return "/containers/" + url.PathEscape(id) + "/" + what }
