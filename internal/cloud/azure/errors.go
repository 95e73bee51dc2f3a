// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
)

// Operations, with their names in Azure's permissions.
const (
	list       = "virtualMachines/read"
	deallocate = "virtualMachines/deallocate"
	start      = "virtualMachines/start"
)

// explainError converts an error of the SDK to an *onebyone.RefusedError or an *actuator.Error. The message does not
// change when the error is repeated.
func (c *accountClient) explainError(operation string, err error) error {
	if failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err); ok {
		return c.explainLogin(failed)
	}
	answer, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return explainMissingAnswer(operation, err)
	}
	code, message := readError(answer)
	class := errorTable().ClassOf(errortable.Found{
		Operation: operation, Code: code, Message: message, Status: answer.StatusCode, HasPause: readRetryAfter(answer.RawResponse) > 0,
	})
	code, message = c.scrub(code), c.scrub(message)
	switch {
	case class == actuator.Unreachable:
		return unreachableErrorf(operation, "the API responds with status %d", answer.StatusCode)
	case onebyone.IsOfMachine(class) && (operation == deallocate || operation == start):
		return &onebyone.RefusedError{Class: class, Code: code, Message: message}
	default:
		return &actuator.Error{Class: class, Message: fmt.Sprintf("%s: %s: %s", operation, code, message), RetryAfter: readRetryAfter(answer.RawResponse)}
	}
}

// readError returns the code and the message of an error. Azure nests errors. Only the outer error is read, because the
// inner errors only add details.
func readError(answer *azcore.ResponseError) (code, message string) {
	var content struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if answer.RawResponse != nil {
		if body, err := runtime.Payload(answer.RawResponse); err == nil {
			// If the body has no message, the status describes the error.
			_ = json.Unmarshal(body, &content)
		}
	}
	code, message = content.Error.Code, content.Error.Message
	if code == "" {
		code = answer.ErrorCode
	}
	if code == "" {
		code = "status " + strconv.Itoa(answer.StatusCode)
	}
	if message == "" {
		message = "without a message"
	}
	return code, message
}

// explainLogin converts the error of a login that returned no token.
func (c *accountClient) explainLogin(failed *azidentity.AuthenticationFailedError) error {
	if failed.RawResponse == nil {
		return unreachableErrorf("login", "the API does not respond, or the response is not a valid Azure response")
	}
	status := failed.RawResponse.StatusCode
	var content struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if body, err := runtime.Payload(failed.RawResponse); err == nil {
		_ = json.Unmarshal(body, &content)
	}
	switch {
	case status == http.StatusTooManyRequests:
		return &actuator.Error{Class: actuator.Throttled, Message: "login: Azure limits the rate of logins and refused this one", RetryAfter: readRetryAfter(failed.RawResponse)}
	case status >= http.StatusInternalServerError || content.Error == "":
		return unreachableErrorf("login", "the API responds with status %d", status)
	}
	// The rest of the description differs at each login.
	description, _, _ := strings.Cut(content.Description, "Trace ID:")
	return actuator.Errorf(actuator.CredentialsInvalid, "login: %s: %s", c.scrub(content.Error), c.scrub(description))
}

// explainMissingAnswer converts the error of a call that received no valid response from the API.
func explainMissingAnswer(operation string, err error) error {
	if foreign, ok := errors.AsType[*foreignHostError](err); ok {
		return unreachableErrorf(operation, "the response contains a URL outside Azure: %.100s", foreign.host)
	}
	_, notSent := errors.AsType[*url.Error](err)
	_, broken := errors.AsType[net.Error](err)
	// Users only need to know that the cloud does not respond, regardless of the cause.
	if notSent || broken || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.ErrUnexpectedEOF) {
		return unreachableErrorf(operation, "the API does not respond")
	}
	return unreachableErrorf(operation, "the response is not a valid Azure response")
}

func unreachableErrorf(operation, format string, args ...any) error {
	return actuator.Errorf(actuator.Unreachable, "%s at Azure: %s; check the network and spec.platform.azure.cloudName", operation, fmt.Sprintf(format, args...))
}

// readRetryAfter returns the pause that Azure requests.
func readRetryAfter(response *http.Response) time.Duration {
	if response == nil {
		return 0
	}
	return cloudrest.ReadRetryAfter(response.Header)
}

// scrub removes secrets, and parts that differ at each call, from the cloud's message, and truncates it.
func (c *accountClient) scrub(message string) string {
	const longest = 400
	for _, secret := range c.secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "<hidden>")
		}
	}
	for _, rule := range []struct{ pattern, instead string }{
		{`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`, "<id>"},
		{`\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?Z?`, "<time>"},
	} {
		message = regexp.MustCompile(rule.pattern).ReplaceAllString(message, rule.instead)
	}
	message = strings.Join(strings.Fields(message), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return message
}
