// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/ec2query"
)

// The kinds of faults that spoil what an instance does rather than what a call answers.
const (
	stuckPending  = "stuckPending"
	stuckStopping = "stuckStopping"
	lostStart     = "lostStart"
)

// injectedFault is something that goes wrong on demand. Faults do not survive a restart of the cloud.
type injectedFault struct {
	// Kind is empty for a fault of a call, or stuckPending, stuckStopping (transitions that end only when the faults
	// are cleared; the second holds terminations too) or lostStart (an accepted start falls back to stopped).
	Kind string `json:"kind"`
	// Action limits a fault of calls to one action; empty is every action.
	Action string `json:"action"`
	// InstanceIDs limits the fault to these instances, or to calls that name one of them; empty is all.
	InstanceIDs []string `json:"instanceIDs"`
	// Code and Message are the error to answer; without a code the call does its work.
	Code    string `json:"code"`
	Message string `json:"message"`
	// HTTPStatus replaces the usual status of the code.
	HTTPStatus int `json:"httpStatus"`
	// Times is how often the fault strikes; 0 means until it is cleared.
	Times int `json:"times"`
	// Delay is how much later the answer leaves, as "1.5s". The work is done without delay.
	Delay jsonDuration `json:"delay"`
}

func (f injectedFault) validate(known func(action string) bool) error {
	if f.Times < 0 || f.Delay < 0 {
		return fmt.Errorf("times and delay must not be negative, found %d and %s", f.Times, time.Duration(f.Delay))
	}
	call := f.Action != "" || f.Code != "" || f.Message != "" || f.HTTPStatus != 0 || f.Delay != 0
	switch f.Kind {
	case "":
		if f.Code == "" && f.Delay == 0 {
			return errors.New("the fault does nothing: give it a code, a delay or a kind")
		}
		if f.HTTPStatus != 0 && (f.Code == "" || f.HTTPStatus < http.StatusBadRequest || f.HTTPStatus > 599) {
			return fmt.Errorf("httpStatus must be 400 to 599 and come with a code, found %d and code %q", f.HTTPStatus, f.Code)
		}
		if f.Action != "" && !known(f.Action) {
			return fmt.Errorf("the cloud has no action %q", f.Action)
		}
	case stuckPending, stuckStopping:
		if call || f.Times != 0 {
			return fmt.Errorf("%s takes instanceIDs only; it lasts until the faults are cleared", f.Kind)
		}
	case lostStart:
		if call {
			return fmt.Errorf("%s takes instanceIDs and times only", f.Kind)
		}
	default:
		return fmt.Errorf("kind must be empty, %s, %s or %s, found %q", stuckPending, stuckStopping, lostStart, f.Kind)
	}
	return nil
}

func (f injectedFault) concernsInstance(ids ...string) bool {
	return len(f.InstanceIDs) == 0 || slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(f.InstanceIDs, id) })
}

// useCallFault returns the fault a call meets and uses it up by one; the zero fault does nothing.
func (c *Cloud) useCallFault(action string, ids []string) injectedFault {
	return c.useFault(func(f injectedFault) bool {
		return f.Kind == "" && (f.Action == "" || f.Action == action) && f.concernsInstance(ids...)
	})
}

// isStuck reports whether a fault keeps the transition of the instance from ending.
func (c *Cloud) isStuck(i instance) bool {
	kind := map[powerState]string{pending: stuckPending, stopping: stuckStopping, shuttingDown: stuckStopping}[i.State]
	return slices.ContainsFunc(c.faults, func(f injectedFault) bool { return kind != "" && f.Kind == kind && f.concernsInstance(i.ID) })
}

// losesStart reports whether the start of the instance is lost, and uses the fault up by one.
func (c *Cloud) losesStart(i instance) bool {
	return c.useFault(func(f injectedFault) bool { return f.Kind == lostStart && f.concernsInstance(i.ID) }).Kind != ""
}

func (c *Cloud) useFault(meant func(injectedFault) bool) injectedFault {
	at := slices.IndexFunc(c.faults, meant)
	if at < 0 {
		return injectedFault{}
	}
	met := c.faults[at]
	switch met.Times {
	case 0:
	case 1:
		c.faults = slices.Delete(c.faults, at, at+1)
	default:
		c.faults[at].Times--
	}
	return met
}

func (f injectedFault) asError() error {
	if f.Code == "" {
		return nil
	}
	message := f.Message
	if message == "" {
		message = "A fault was asked for."
	}
	return &ec2query.Error{Code: f.Code, Message: message, Status: f.HTTPStatus}
}
