// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// Error codes from libvirt's virterror.h that Torpor distinguishes.
const (
	codeNoMemory          = 2
	codeOperationDenied   = 29
	codeNoDomain          = 42
	codeAuthFailed        = 45
	codeOperationInvalid  = 55
	codeOperationTimeout  = 68
	codeOperationAborted  = 78
	codeAuthCancelled     = 79
	codeNoMetadata        = 80
	codeAgentUnresponsive = 86
	codeResourceBusy      = 87
	codeAccessDenied      = 88
	codeAuthUnavailable   = 94
)

// daemonError is the daemon's error for a failed call.
type daemonError struct {
	code    uint32
	message string
}

// Error implements error.
func (e *daemonError) Error() string { return fmt.Sprintf("libvirt error %d: %s", e.code, e.message) }

func hasCode(err error, code uint32) bool {
	said, ok := errors.AsType[*daemonError](err)
	return ok && said.code == code
}

// openingError reports why a daemon cannot open a driver.
type openingError struct {
	driver string
	err    error
}

// Error implements error.
func (e *openingError) Error() string { return "open " + e.driver + ": " + e.err.Error() }

// Unwrap returns the cause.
func (e *openingError) Unwrap() error { return e.err }

// errorExplainer converts errors of one daemon to messages for users.
type errorExplainer struct {
	// driver is the URI that the daemon opens.
	driver string
	// isTrusted reports whether the administrator has listed the daemon. Messages of other daemons are not shown. The
	// author of the Secret chooses the server, and could otherwise read responses of other servers.
	isTrusted bool
}

func (a *Actuator) errorExplainer(d daemon) errorExplainer {
	return errorExplainer{driver: d.driver, isTrusted: d.transport == overSocket || a.options.Endpoints.Includes(d.host)}
}

// explainOrder converts the error of an order for one domain. It returns an *onebyone.RefusedError if the error may
// concern only this domain, and otherwise the result of explainError.
func (d errorExplainer) explainOrder(ctx context.Context, operation string, err error) error {
	if known, ok := errors.AsType[*onebyone.RefusedError](err); ok {
		return known
	}
	if said, ok := errors.AsType[*daemonError](err); ok && onebyone.IsOfMachine(classOf(said)) {
		return &onebyone.RefusedError{Class: classOf(said), Code: fmt.Sprintf("error %d", said.code), Message: d.describe(said)}
	}
	return d.explainError(ctx, operation, err)
}

// explainError converts an error to an *actuator.Error. The message does not change when the error is repeated.
func (d errorExplainer) explainError(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err() // The caller ended the call, so the error does not describe the daemon.
	}
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known
	}
	opening, isOpening := errors.AsType[*openingError](err)
	said, isSaid := errors.AsType[*daemonError](err)
	switch {
	case !isSaid:
		return explainMissingAnswer(operation, err)
	case classOf(said) == actuator.CredentialsInvalid:
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: the daemon refuses the login: %s: correct the credentials Secret, or the daemon's settings", operation, d.describe(said))
	case isOpening && classOf(said) != actuator.PermissionDenied:
		return unreachableErrorf(operation, fmt.Sprintf("the daemon cannot open %s: %s", opening.driver, d.describe(said)))
	default:
		return actuator.Errorf(classOf(said), "%s: %s", operation, d.describe(said))
	}
}

// explainMissingAnswer converts the error of a call that received no valid response from the daemon. An unreachable
// daemon, a broken connection and a timeout have the same description, because users only need to know that the daemon
// does not respond.
func explainMissingAnswer(operation string, err error) error {
	_, isUnknownServer := errors.AsType[*tls.CertificateVerificationError](err)
	_, isPlain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, errCertificateRefused):
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: the daemon rejects %s of the credentials Secret: have it signed by the daemon's authority, and add it to the daemon's list of clients, if any", operation, certificateKey)
	case errors.Is(err, errAuthenticationUnknown):
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: the daemon requires a password, but Torpor logs in with a certificate: set the daemon's auth_tls to none", operation)
	case isUnknownServer:
		return unreachableErrorf(operation, "the daemon's certificate is not valid for this host, or not signed by "+authorityKey)
	case errors.Is(err, errAnswerTooLarge):
		return unreachableErrorf(operation, "the response is larger than allowed")
	case errors.Is(err, errListTooLong):
		return unreachableErrorf(operation, "the list has more domains than allowed")
	case errors.Is(err, errNotLibvirt), isPlain:
		return unreachableErrorf(operation, "the response is not a valid libvirt response")
	case errors.Is(err, httpguard.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s: %s", operation, httpguard.ErrAddressDenied)
	default:
		return unreachableErrorf(operation, "the daemon does not respond")
	}
}

func unreachableErrorf(operation, found string) error {
	return actuator.Errorf(actuator.Unreachable, "cannot %s at libvirt: %s; check the daemon, the network and %s of the credentials Secret", operation, found, uriKey)
}

// classOf returns the class of an error.
func classOf(e *daemonError) actuator.ErrorClass {
	return errorTable().ClassOf(errortable.Found{Code: nameOfCode(e.code), Message: e.message})
}

// describe returns the daemon's message, without parts that differ at each call. If the daemon is not trusted, it
// returns the number of the error.
func (d errorExplainer) describe(e *daemonError) string {
	const longest = 400
	if !d.isTrusted || e.message == "" {
		return fmt.Sprintf("libvirt's error %d", e.code)
	}
	message := regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[0-9:.]+Z?\b`).ReplaceAllString(e.message, "<time>")
	message = regexp.MustCompile(`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`).ReplaceAllString(message, "<id>")
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "")), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return message
}
