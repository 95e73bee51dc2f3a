// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

var (
	errNotOpenStack = errors.New("the response is not a valid OpenStack response")
	errListTooLong  = errors.New("the list has more pages or servers than allowed")
)

// loginError explains why the login returned no token.
type loginError struct{ err error }

// Error implements error.
func (e *loginError) Error() string { return "login: " + e.err.Error() }

// Unwrap returns the cause.
func (e *loginError) Unwrap() error { return e.err }

// explainError converts an error of the library to an *onebyone.RefusedError or an *actuator.Error. The message does
// not change when the error is repeated. The library's own messages contain URLs and bodies.
func (c *projectClient) explainError(operation string, err error) error {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known
	}
	if known, ok := errors.AsType[*onebyone.RefusedError](err); ok {
		return known
	}
	if relogin, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return c.explainLogin(relogin.ErrReauth)
	}
	if login, ok := errors.AsType[*loginError](err); ok {
		return c.explainLogin(login.err)
	}
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return c.explainMissingAnswer(operation, err)
	}
	class, message := classOf(operation, answer), c.describe(answer)
	switch {
	case class == actuator.Unreachable:
		return c.unreachableErrorf(operation, "the API responds with status %d", answer.Actual)
	case onebyone.IsOfMachine(class) && operation != list:
		return &onebyone.RefusedError{Class: class, Code: "status " + strconv.Itoa(answer.Actual), Message: message}
	default:
		return &actuator.Error{Class: class, Message: operation + ": " + message, RetryAfter: cloudrest.ReadRetryAfter(answer.ResponseHeader)}
	}
}

// explainLogin converts the error of a login that returned no token.
func (c *projectClient) explainLogin(err error) error {
	const login = "login"
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	switch {
	case !ok:
		return c.explainMissingAnswer(login, err)
	case answer.Actual == http.StatusUnauthorized, answer.Actual == http.StatusBadRequest, answer.Actual == http.StatusForbidden:
		return actuator.Errorf(actuator.CredentialsInvalid, "login: %s: correct %s in the credentials Secret", c.describe(answer), cloudsKey)
	case classOf(login, answer) == actuator.Throttled:
		return &actuator.Error{Class: actuator.Throttled, Message: "login: the cloud limits the rate of logins and refused this one", RetryAfter: cloudrest.ReadRetryAfter(answer.ResponseHeader)}
	default:
		return c.unreachableErrorf(login, "the API responds with status %d", answer.Actual)
	}
}

// explainMissingAnswer converts the error of a call that received no valid response from the API. A failed connection,
// an interruption and a timeout have the same description, because users only need to know that the cloud does not
// respond.
func (c *projectClient) explainMissingAnswer(operation string, err error) error {
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	wrong, isWrongType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, errForeignHost):
		return c.unreachableErrorf(operation, "the response contains a URL outside the cloud")
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return c.unreachableErrorf(operation, "the response is larger than allowed")
	case errors.Is(err, errListTooLong):
		return c.unreachableErrorf(operation, "the list has more pages or servers than allowed")
	case errors.Is(err, httpguard.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s: %s", operation, httpguard.ErrAddressDenied)
	case errors.Is(err, errNotOpenStack), isSyntax && syntax != nil, isWrongType && wrong != nil:
		return c.unreachableErrorf(operation, "the response is not a valid OpenStack response")
	default:
		return c.unreachableErrorf(operation, "the API does not respond")
	}
}

func (*projectClient) unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "%s at OpenStack: %s; check the network and auth_url in %s of the credentials Secret", operation, fmt.Sprintf(format, args...), cloudsKey)
}

// classOf returns the class of a response.
func classOf(operation string, answer gophercloud.ErrUnexpectedResponseCode) actuator.ErrorClass {
	return errorTable().ClassOf(errortable.Found{
		Operation: operation, Message: messageOf(answer.Body), Status: answer.Actual, HasPause: cloudrest.ReadRetryAfter(answer.ResponseHeader) > 0,
	})
}

// describe returns the status, with the server's message if the administrator has listed the server. The author of the
// Secret chooses the server, and could otherwise read responses of other servers.
func (c *projectClient) describe(answer gophercloud.ErrUnexpectedResponseCode) string {
	status := fmt.Sprintf("status %d %s", answer.Actual, http.StatusText(answer.Actual))
	if message := messageOf(answer.Body); c.isTrusted && message != "" {
		return status + ": " + c.scrub(message)
	}
	return status
}

// messageOf returns the message of an error. In all services, the error has the form {"KIND": {"message": …}}.
func messageOf(body []byte) string {
	var content map[string]struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return "" // A response without a message still has a status.
	}
	for _, inner := range content {
		if inner.Message != "" {
			return inner.Message
		}
	}
	return ""
}

// isLocked reports whether an order was refused because the server is locked.
func isLocked(refusal error) bool {
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](refusal)
	return ok && strings.Contains(messageOf(answer.Body), "is locked")
}

// describeState describes the status and the task of a server for a message. The API has a fixed set of names, so
// longer ones are truncated.
func describeState(s *servers.Server) string {
	text := strings.ToLower(s.Status)
	if s.TaskState != "" {
		text += ", " + s.TaskState
	}
	return fmt.Sprintf("%.60q", text)
}

// scrub removes secrets, and parts that differ at each call, from the cloud's message, and truncates it.
func (c *projectClient) scrub(message string) string {
	const longest = 400
	for _, secret := range c.settings.secretValues() {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "<hidden>")
		}
	}
	message = regexp.MustCompile(`(?i)\breq-[0-9a-f-]+\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`).ReplaceAllString(message, "<id>")
	message = strings.Join(strings.Fields(message), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return message
}
