// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	errNotAnEngine = errors.New("the response is not from a Docker or Podman engine")
	errListTooLong = errors.New("the list has more containers than allowed")
)

// answerError is a response with an error status.
type answerError struct {
	status int
	// message is the engine's message. It may be empty.
	message    string
	retryAfter time.Duration
}

// Error implements error.
func (e *answerError) Error() string { return fmt.Sprintf("status %d", e.status) }

func readFailure(answer *http.Response, content []byte) error {
	failure := &answerError{status: answer.StatusCode, retryAfter: (&cloudrest.StatusError{Header: answer.Header}).RetryAfter()}
	var words struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(content, &words) == nil { // A response without a message still has a status.
		failure.message = words.Message
	}
	return failure
}

// isAboutState reports whether an order may have been refused because of the container's state. Engines use both 409
// and 500 for such a refusal.
func isAboutState(err error) bool {
	failure, ok := errors.AsType[*answerError](err)
	return ok && (failure.status == http.StatusConflict || failure.status == http.StatusInternalServerError)
}

// explainError converts an error to an *onebyone.RefusedError or an *actuator.Error. The message does not change when
// the error is repeated.
func (c *engineClient) explainError(operation string, err error) error {
	if refused, ok := errors.AsType[*onebyone.RefusedError](err); ok {
		return refused
	}
	failure, ok := errors.AsType[*answerError](err)
	if !ok {
		return explainMissingAnswer(operation, err)
	}
	class := classOf(operation, failure)
	switch {
	case class == actuator.Unreachable:
		return unreachableErrorf(operation, "the engine responds with status %d", failure.status)
	case onebyone.IsOfMachine(class) && operation != list:
		return &onebyone.RefusedError{Class: class, Code: "status " + strconv.Itoa(failure.status), Message: c.describe(failure)}
	default:
		return &actuator.Error{Class: class, Message: operation + ": " + c.describe(failure), RetryAfter: failure.retryAfter}
	}
}

// classOf returns the class of a response with an error status.
func classOf(operation string, failure *answerError) actuator.ErrorClass {
	return errorTable().ClassOf(errortable.Found{Operation: operation, Message: failure.message, Status: failure.status, HasPause: failure.retryAfter > 0})
}

// isPortTaken reports whether another program occupies the container's port. That program may release the port later.
func isPortTaken(err error) bool {
	failure, ok := errors.AsType[*answerError](err)
	if !ok {
		return false
	}
	return strings.Contains(failure.message, portAllocated) || strings.Contains(failure.message, addressInUse)
}

// explainMissingAnswer converts the error of a call that received no valid response from the API.
func explainMissingAnswer(operation string, err error) error {
	unverified, isUnverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return unreachableErrorf(operation, "the response is larger than allowed")
	case errors.Is(err, httpguard.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s: %s", operation, httpguard.ErrAddressDenied)
	case errors.Is(err, errListTooLong):
		return unreachableErrorf(operation, "the list has more than %d containers", maxContainers)
	case errors.Is(err, errNotAnEngine):
		return unreachableErrorf(operation, "the response is not from a Docker or Podman engine")
	case isAboutOwnCertificate(err):
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: the engine rejects the certificate: correct %s and %s in the credentials Secret", operation, certificateKey, privateKeyKey)
	case isUnverified && unverified != nil:
		return unverifiedError(operation, unverified.Err)
	default:
		return unreachableErrorf(operation, "the engine does not respond")
	}
}

// isAboutOwnCertificate reports whether the engine closed the connection because of the client's certificate. The
// standard library does not export its type of TLS alerts.
func isAboutOwnCertificate(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	if !ok || alert.Op != "remote error" || alert.Err == nil {
		return false
	}
	text := alert.Err.Error()
	return strings.Contains(text, "certificate") || strings.Contains(text, "access denied")
}

// unverifiedError returns the error for an engine whose certificate is not accepted, without text from the server.
func unverifiedError(operation string, err error) error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return actuator.Errorf(actuator.CredentialsInvalid, "%s: the certificate of the engine, or of its authority, has expired or is not yet valid; renew it, and check the clocks", operation)
	}
	return actuator.Errorf(actuator.CredentialsInvalid, "%s: the engine's certificate is not signed by %s in the credentials Secret, or is not valid for the engine's address; correct %s or spec.platform.containers.engine",
		operation, authorityKey, authorityKey)
}

func unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "cannot %s at the container engine: %s; check that the engine runs, and spec.platform.containers.engine", operation, fmt.Sprintf(format, args...))
}

// describe returns the status, with the engine's message if the administrator has listed the engine. The author of the
// ClusterDeployment chooses the engine, and could otherwise read responses of other servers.
func (c *engineClient) describe(failure *answerError) string {
	const longest = 400
	status := fmt.Sprintf("status %d %s", failure.status, http.StatusText(failure.status))
	if !c.isTrusted || failure.message == "" {
		return status
	}
	// IDs do not change but are long, and the message lists the machines anyway.
	message := regexp.MustCompile(`\b[0-9a-f]{32,64}\b`).ReplaceAllString(strings.ToValidUTF8(failure.message, ""), "<id>")
	message = strings.Join(strings.Fields(message), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return status + ": " + message
}
