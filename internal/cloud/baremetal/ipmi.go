// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// Functions, commands and completion codes in use (appendix G, table 5-2).
const (
	functionChassis, functionApplication = 0x00, 0x06

	commandChassisStatus, commandChassisControl      = 0x01, 0x02
	commandSetPrivilege, commandCloseSession         = 0x3b, 0x3c
	codeDone, codeBusy, codeUnknown, codeUnspecified = 0x00, 0xc0, 0xc1, 0xff
	codeTimeout, codeOutOfSpace                      = 0xc3, 0xc4
	codeNoResponse, codeDuplicate                    = 0xce, 0xcf
	codeUpdating, codeInitializing                   = 0xd1, 0xd2
	codeNoDestination, codeDenied, codeNotNow        = 0xd3, 0xd4, 0xd5
	codeNoSuchPrivilege, codeAbovePrivilege          = 0x80, 0x81
)

const (
	// resendAfter is how long to wait for a response before a packet is sent again.
	resendAfter = time.Second
	// closeTimeout limits the request that closes a session. Without this request, a controller drops the silent
	// session later.
	closeTimeout = time.Second
)

// ipmiController is a controller that speaks IPMI 2.0.
type ipmiController struct {
	hostPort string
	login    login
	dialer   *net.Dialer
	// resend is how long to wait for a response before the request is sent again.
	resend time.Duration
	// suites are the cipher suites to try, the most likely one first.
	suites []cipherSuite
	// visits allows one open session at a time, because controllers have room for few sessions.
	visits *semaphore.Weighted
}

// visit implements managementController.
func (c *ipmiController) visit(ctx context.Context, choose func(actuator.MachineState) (powerOrder, error)) (actuator.MachineState, error) {
	if err := c.visits.Acquire(ctx, 1); err != nil {
		return "", noAnswer()
	}
	defer c.visits.Release(1)
	conn, err := c.dialer.DialContext(ctx, "udp", c.hostPort)
	if err != nil {
		return "", explainIPMI(err)
	}
	defer func() { _ = conn.Close() }()
	session, err := openSession(ctx, conn, c.login, c.suites, c.resend)
	if err != nil {
		return "", explainIPMI(err)
	}
	if c.suites[0].authentication != session.suite.authentication {
		slices.Reverse(c.suites) // The next visit begins with the suite that succeeded.
	}
	defer session.close(ctx)
	if err := session.becomeOperator(ctx); err != nil {
		return "", explainIPMI(err)
	}
	code, status, err := session.run(ctx, functionChassis, commandChassisStatus)
	switch {
	case err != nil:
		return "", explainIPMI(err)
	case code != codeDone:
		return "", explainCode("read the power", code)
	case len(status) == 0:
		return "", explainIPMI(errNotIPMI)
	}
	seen := actuator.Stopped
	if status[0]&1 != 0 {
		seen = actuator.Running
	}
	order, err := choose(seen)
	if err != nil || order == noOrder {
		return seen, err
	}
	action := map[powerOrder]byte{cutPower: 0, turnOn: 1, shutDown: 5}[order]
	code, _, err = session.run(ctx, functionChassis, commandChassisControl, action)
	if err != nil {
		return seen, explainIPMI(err)
	}
	return seen, explainCode(string(order), code)
}

func (s *ipmiSession) becomeOperator(ctx context.Context) error {
	code, _, err := s.run(ctx, functionApplication, commandSetPrivilege, privilegeOperator)
	switch {
	case err != nil:
		return err
	case code == codeNoSuchPrivilege, code == codeAbovePrivilege, code == codeDenied:
		return errPrivilegeDenied
	case code != codeDone:
		return errNotIPMI
	default:
		return nil
	}
}

// close ends the session, because a controller has room for few sessions.
func (s *ipmiSession) close(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_, _, _ = s.run(limited, functionApplication, commandCloseSession, s.remote[:]...) // The controller would also drop the session without this request.
}

// explainCode returns the error for a completion code (5.2), or nil if the command was executed.
func explainCode(order string, code byte) error {
	class := ipmiErrors().ClassOf(errortable.Found{Operation: order, Code: codeTexts(code)[0]})
	switch code {
	case codeDone:
		return nil
	case codeBusy:
		return &actuator.Error{Class: class, Message: "its BMC is busy"}
	case codeDenied:
		return explainIPMI(errPrivilegeDenied)
	case codeNotNow:
		return &actuator.Error{Class: class, Message: "its BMC cannot " + order + " in the present state of the machine"}
	case codeUnspecified:
		return &actuator.Error{Class: class, Message: "its BMC reported an unspecified error"}
	case codeUnknown:
		return actuator.Errorf(class, "its BMC cannot %s", order)
	default:
		return actuator.Errorf(class, "its BMC did not carry out the request to %s: completion code 0x%02x", order, code)
	}
}

// explainIPMI converts an error of a session to an *actuator.Error.
func explainIPMI(err error) error {
	switch {
	case errors.Is(err, errLoginRefused):
		return actuator.Errorf(actuator.CredentialsInvalid, "its BMC rejects the login: correct %s and %s in the credentials Secret", usernameKey, passwordKey)
	case errors.Is(err, errPrivilegeDenied):
		return &actuator.Error{Class: actuator.PermissionDenied, Message: "its BMC does not grant the operator privilege to the user: grant it"}
	case errors.Is(err, errSuiteRefused):
		return actuator.Errorf(actuator.Other, "its BMC supports neither cipher suite 17 nor 3: enable one of them")
	case errors.Is(err, errBusy):
		return &actuator.Error{Class: actuator.Throttled, Message: "its BMC has no room for another session"}
	case errors.Is(err, errNotIPMI):
		return &actuator.Error{Class: actuator.Unreachable, Message: "the server at its address does not speak IPMI 2.0"}
	case errors.Is(err, httpguard.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s", httpguard.ErrAddressDenied)
	default:
		return noAnswer()
	}
}

// silenceError reports a controller that does not respond, regardless of the cause.
type silenceError struct{ known *actuator.Error }

// Error implements error.
func (e *silenceError) Error() string { return e.known.Error() }

// Unwrap returns the error with its class.
func (e *silenceError) Unwrap() error { return e.known }

func noAnswer() error {
	return &silenceError{&actuator.Error{Class: actuator.Unreachable, Message: "its BMC does not respond; check its address and the network"}}
}
