// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// Operations with refusals that may concern single machines.
const (
	startInstances     = "StartInstances"
	stopInstances      = "StopInstances"
	terminateInstances = "TerminateInstances"
)

// machineRefusedError is a refusal by the cloud that may concern only some of the machines in a call.
type machineRefusedError struct {
	class         actuator.ErrorClass
	code, message string
}

// Error implements error.
func (r *machineRefusedError) Error() string { return r.code + ": " + r.message }

// explainError converts an error of the SDK to a *machineRefusedError or an *actuator.Error. The message does not
// change when the error is repeated.
func (c *accountClient) explainError(operation string, err error) error {
	if failed, ok := errors.AsType[*assumeRoleError](err); ok {
		return failed.explain()
	}
	status := statusOf(err)
	if status >= http.StatusMultipleChoices && status < http.StatusBadRequest {
		return c.unreachableError(operation, "the API responds with a redirect, which Torpor does not follow")
	}
	api, ok := asAPIError(err)
	if !ok {
		return c.explainMissingAnswer(operation, status, err)
	}
	// The class is determined before secrets are removed, because a short secret may be part of a code.
	class := classOf(api.ErrorCode(), status)
	code := scrubMessage(api.ErrorCode(), c.secrets)
	message := hintFor(operation, code) + scrubMessage(api.ErrorMessage(), c.secrets)
	if !c.isTrusted {
		code, message = "refused", "the message of this endpoint is hidden, because the endpoint is neither AWS nor listed by --allow-endpoints"
	}
	switch {
	case class == actuator.Unreachable:
		return c.unreachableError(operation, c.describeStatus(status))
	// The error concerns single machines, so other machines may succeed. It does not concern the account, the network
	// or the request rate.
	case urgencyOf(class) >= 0 && slices.Contains([]string{stopInstances, startInstances, terminateInstances}, operation):
		return &machineRefusedError{class: class, code: code, message: message}
	default:
		return actuator.Errorf(class, "%s: %s: %s", operation, code, message)
	}
}

// explainMissingAnswer converts the error of a call that received no valid response from the API.
func (c *accountClient) explainMissingAnswer(operation string, status int, err error) error {
	switch {
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return c.unreachableError(operation, "the response is larger than allowed")
	case errors.Is(err, httpguard.ErrAddressDenied):
		return c.unreachableError(operation, httpguard.ErrAddressDenied.Error())
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return c.unreachableError(operation, "the host is unknown")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return c.unreachableError(operation, "the certificate of the API is not trusted")
	}
	_, notSent := errors.AsType[*smithyhttp.RequestSendError](err)
	_, broken := errors.AsType[net.Error](err)
	// Users only need to know that the cloud does not respond, regardless of the cause.
	switch {
	case notSent, broken, errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return c.unreachableError(operation, "the API does not respond")
	case status >= http.StatusMultipleChoices:
		return c.unreachableError(operation, c.describeStatus(status))
	case status != 0:
		return c.unreachableError(operation, "the response is not a valid EC2 response")
	default:
		return actuator.Errorf(actuator.Other, "%s: the request cannot be made to %s in region %s: check the region and the endpoint", operation, c.host, c.region)
	}
}

// describeStatus describes an HTTP status. It hides the status of an untrusted endpoint, because the author of the
// Secret might have no permission to call that server.
func (c *accountClient) describeStatus(status int) string {
	if !c.isTrusted {
		return "the response is not a valid EC2 response"
	}
	return fmt.Sprintf("the API responds with status %d", status)
}

func (c *accountClient) unreachableError(operation, why string) error {
	return actuator.Errorf(actuator.Unreachable, "%s: %s in region %s: %s; check the region, the endpoint and the network", operation, c.host, c.region, why)
}

func asAPIError(err error) (smithy.APIError, bool) { return errors.AsType[smithy.APIError](err) }

// hintFor returns an explanation that EC2's own message lacks, or "".
func hintFor(operation, code string) string {
	if operation == stopInstances && (code == "UnsupportedOperation" || code == "IncorrectSpotRequestState") {
		return "spot machines of one-time requests cannot be stopped, and Torpor terminates only spot machines that a MachineSet of OpenShift replaces: "
	}
	return ""
}

// classOf returns the class of an error code. Some endpoints add the prefix Client. or Server. to codes.
func classOf(code string, status int) actuator.ErrorClass {
	return errorTable().ClassOf(errortable.Found{Code: strings.TrimPrefix(strings.TrimPrefix(code, "Client."), "Server."), Status: status})
}

// statusOf returns the HTTP status of an error's response, or 0.
func statusOf(err error) int {
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return 0
}

// scrubMessage removes secrets, and parts that differ at each call, from the cloud's message, and truncates it.
func scrubMessage(message string, secrets []string) string {
	const longest = 400
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "<hidden>")
		}
	}
	for _, rule := range []struct{ pattern, instead string }{
		{`(?i)encoded authorization failure message:\s*\S*`, " "},
		{`(?i)[(,;]?\s*request[ _-]?id\s*[:=]?\s*"?[0-9a-z]+(-[0-9a-z]+)+"?\)?`, " "},
		{`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`, "<id>"},
		{`\b(AKIA|ASIA)[A-Z0-9]{12,}\b`, "<access key>"},
		{`\b\d{8}T\d{6}Z\b`, "<time>"},
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
