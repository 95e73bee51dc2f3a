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
	"github.com/torpor-dev/torpor/internal/cloud/orders"
	"github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/egress"
)

var (
	errNotOpenStack = errors.New("the answer is not one of OpenStack")
	errListTooLong  = errors.New("the list has more pages or servers than a project may have")
)

// loginError is why there is no token.
type loginError struct{ err error }

// Error implements error.
func (e *loginError) Error() string { return "login: " + e.err.Error() }

// Unwrap returns why.
func (e *loginError) Unwrap() error { return e.err }

// explainError turns an error of the library into an *orders.RefusedError or an *actuator.Error with a message that is the same each time.
// The library's own texts hold URLs and bodies.
func (c *projectClient) explainError(operation string, err error) error {
	if known, ok := errors.AsType[*actuator.Error](err); ok {
		return known
	}
	if known, ok := errors.AsType[*orders.RefusedError](err); ok {
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
	class, message := classOf(answer.Actual), c.describe(answer)
	switch {
	case class == actuator.Unreachable:
		return c.unreachableErrorf(operation, "it answers with status %d", answer.Actual)
	case orders.IsOfMachine(class) && operation != list:
		return &orders.RefusedError{Class: class, Code: "status " + strconv.Itoa(answer.Actual), Message: message}
	default:
		return &actuator.Error{Class: class, Message: operation + ": " + message, RetryAfter: rest.ReadRetryAfter(answer.ResponseHeader)}
	}
}

// explainLogin explains why there is no token.
func (c *projectClient) explainLogin(err error) error {
	const login = "login"
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	switch {
	case !ok:
		return c.explainMissingAnswer(login, err)
	case answer.Actual == http.StatusUnauthorized, answer.Actual == http.StatusBadRequest, answer.Actual == http.StatusForbidden:
		return actuator.Errorf(actuator.CredentialsInvalid, "login: %s: correct %s in the credentials Secret", c.describe(answer), cloudsKey)
	case classOf(answer.Actual) == actuator.Throttled:
		return &actuator.Error{Class: actuator.Throttled, Message: "login: the cloud takes no more logins at the moment", RetryAfter: rest.ReadRetryAfter(answer.ResponseHeader)}
	default:
		return c.unreachableErrorf(login, "it answers with status %d", answer.Actual)
	}
}

// explainMissingAnswer explains an error that is not the API's. Not sent at all, broken off or out of time: to the user all of them are a
// cloud that does not answer.
func (c *projectClient) explainMissingAnswer(operation string, err error) error {
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	wrong, isWrongType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, errForeignHost):
		return c.unreachableErrorf(operation, "its answer names a host that is none of the cloud's")
	case errors.Is(err, egress.ErrAnswerTooLarge):
		return c.unreachableErrorf(operation, "its answer is larger than allowed")
	case errors.Is(err, errListTooLong):
		return c.unreachableErrorf(operation, "its list has more pages or servers than a project may have")
	case errors.Is(err, egress.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s: %s", operation, egress.ErrAddressDenied)
	case errors.Is(err, errNotOpenStack), isSyntax && syntax != nil, isWrongType && wrong != nil:
		return c.unreachableErrorf(operation, "its answer is not one of OpenStack")
	default:
		return c.unreachableErrorf(operation, "it does not answer")
	}
}

func (*projectClient) unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "%s at OpenStack: %s; check the network and auth_url in %s of the credentials Secret", operation, fmt.Sprintf(format, args...), cloudsKey)
}

// classOf sorts answers by what can be done about them.
func classOf(status int) actuator.ErrorClass {
	switch {
	case status == http.StatusUnauthorized:
		return actuator.CredentialsInvalid
	case status == http.StatusForbidden:
		return actuator.PermissionDenied
	case status == http.StatusNotFound:
		return actuator.NotFound
	case status == http.StatusConflict:
		return actuator.WrongState
	case status == http.StatusTooManyRequests, status == http.StatusRequestEntityTooLarge: // The second is nova's own, of old.
		return actuator.Throttled
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status < http.StatusBadRequest:
		return actuator.Unreachable
	default:
		return actuator.Other
	}
}

// describe returns what a server says, if the administrator lists it: whoever writes the Secret chooses the server, and could read others
// by their answers.
func (c *projectClient) describe(answer gophercloud.ErrUnexpectedResponseCode) string {
	status := fmt.Sprintf("status %d %s", answer.Actual, http.StatusText(answer.Actual))
	if message := messageOf(answer.Body); c.isTrusted && message != "" {
		return status + ": " + c.scrub(message)
	}
	return status
}

// messageOf reads the message of an error, which has the shape {"KIND": {"message": …}} in all services.
func messageOf(body []byte) string {
	var content map[string]struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return "" // An answer without words still has its status.
	}
	for _, inner := range content {
		if inner.Message != "" {
			return inner.Message
		}
	}
	return ""
}

// isLocked reports whether a server was refused because somebody locked it.
func isLocked(refusal error) bool {
	answer, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](refusal)
	return ok && strings.Contains(messageOf(answer.Body), "is locked")
}

// describeState names a state for a message; the words are the API's own, so that others are cut off.
func describeState(s *servers.Server) string {
	text := strings.ToLower(s.Status)
	if s.TaskState != "" {
		text += ", " + s.TaskState
	}
	return fmt.Sprintf("%.60q", text)
}

// scrub removes from the cloud's words what must not be shown and what is different each time.
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
