// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cloud/errortable"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes is far more than the size of a machine's description, about ten thousand bytes.
	maxAnswerBytes = 1 << 20
	// maxConnections is the maximum number of connections to a controller. Controllers have little computing power.
	maxConnections = 2
	dialTimeout    = 10 * time.Second
)

// redfishController is a controller that serves Redfish.
type redfishController struct {
	url       string
	login     login
	http      *http.Client
	isTrusted bool
}

func newRedfishController(address bmcAddress, l login, endpoints httpguard.Endpoints) *redfishController {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: l.roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
	}
	httpguard.BoundTransport(transport)
	return &redfishController{url: "https://" + address.hostPort + address.system, login: l, http: httpguard.NewClient(transport, maxAnswerBytes, 0)}
}

// computerSystem is the part of a machine's description that Torpor reads (DMTF DSP0268).
type computerSystem struct {
	Type       string `json:"@odata.type"`
	PowerState string `json:"PowerState"`
	Actions    struct {
		Reset struct {
			Allowable []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	} `json:"Actions"`
}

// visit implements managementController.
func (c *redfishController) visit(ctx context.Context, choose func(actuator.MachineState) (powerOrder, error)) (actuator.MachineState, error) {
	var system computerSystem
	if err := c.send(ctx, http.MethodGet, "", nil, &system); err != nil {
		return "", c.explainError("read the power", err)
	}
	if !strings.HasPrefix(system.Type, "#ComputerSystem.") {
		return "", c.explainError("read the power", errNotRedfish)
	}
	seen := stateOf(system.PowerState)
	order, err := choose(seen)
	if err != nil || order == noOrder {
		return seen, err
	}
	reset := map[powerOrder]string{cutPower: "ForceOff", turnOn: "On", shutDown: "GracefulShutdown"}[order]
	if allowable := system.Actions.Reset.Allowable; len(allowable) > 0 && !slices.Contains(allowable, reset) {
		return seen, actuator.Errorf(actuator.Other, "its BMC cannot %s: it has no ResetType %s", order, reset)
	}
	// The description also contains the URL of the action. That URL is not used, because the password must not be sent
	// to a URL from a response.
	if err := c.send(ctx, http.MethodPost, "/Actions/ComputerSystem.Reset", map[string]string{"ResetType": reset}, nil); err != nil {
		return seen, c.explainError(string(order), err)
	}
	return seen, nil
}

// stateOf converts a power state of Redfish.
func stateOf(power string) actuator.MachineState {
	switch power {
	case "On", "Paused":
		return actuator.Running
	case "Off":
		return actuator.Stopped
	case "PoweringOff":
		return actuator.Stopping
	default:
		return actuator.Starting // PoweringOn or unknown; empty while the controller itself starts.
	}
}

var errNotRedfish = errors.New("the answer is not a Redfish response")

// answerError is a response with an error status.
type answerError struct {
	status int
	// code is the message's name in its registry, such as Base.1.8.ActionNotSupported. It may be empty.
	code       string
	message    string
	retryAfter time.Duration
}

// Error implements error.
func (e *answerError) Error() string { return fmt.Sprintf("status %d", e.status) }

// send sends a request for the machine. It decodes the JSON of the response into result unless result is nil.
func (c *redfishController) send(ctx context.Context, method, path string, body, result any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return fmt.Errorf("create the request: %w", err)
	}
	request.SetBasicAuth(c.login.user, c.login.password)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("OData-Version", "4.0")
	request.Header.Set("User-Agent", buildinfo.UserAgent("torpor"))
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // An error of Close loses nothing.
	text, err := io.ReadAll(answer.Body)       // The transport limits the size of the response.
	switch {
	case err != nil:
		return fmt.Errorf("read the response: %w", err)
	case answer.StatusCode >= http.StatusMultipleChoices:
		return readFailure(answer, text)
	case result == nil || json.Unmarshal(text, result) == nil:
		return nil // The status may be 202: the next visit reads the effect of the task.
	default:
		return errNotRedfish
	}
}

func readFailure(answer *http.Response, text []byte) error {
	failure := &answerError{status: answer.StatusCode, retryAfter: (&cloudrest.StatusError{Header: answer.Header}).RetryAfter()}
	var content struct {
		Error struct {
			Code     string `json:"code"`
			Message  string `json:"message"`
			Extended []struct {
				ID      string `json:"MessageId"`
				Message string `json:"Message"`
			} `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &content) == nil { // A response without a message still has a status.
		failure.code, failure.message = content.Error.Code, content.Error.Message
		if len(content.Error.Extended) > 0 && content.Error.Extended[0].ID != "" {
			failure.code = content.Error.Extended[0].ID // The outer code only refers to the extended code.
		}
		if len(content.Error.Extended) > 0 && content.Error.Extended[0].Message != "" {
			// The outer message only refers to the extended message.
			failure.message = content.Error.Extended[0].Message
		}
	}
	return failure
}

// explainError converts an error to an *actuator.Error. The message does not change when the error is repeated.
func (c *redfishController) explainError(order string, err error) error {
	if failure, ok := errors.AsType[*answerError](err); ok {
		return &actuator.Error{Class: failure.class(), Message: "its BMC did not carry out the request to " + order + ": " + c.describe(failure), RetryAfter: failure.retryAfter}
	}
	unverified, isUnverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isUnverified && unverified != nil:
		return actuator.Errorf(actuator.CredentialsInvalid, "the certificate of its BMC is not signed by %s in the credentials Secret, or not valid for its address: correct them", authorityKey)
	case errors.Is(err, httpguard.ErrAnswerTooLarge):
		return &actuator.Error{Class: actuator.Unreachable, Message: "the response of its BMC is larger than allowed"}
	case errors.Is(err, httpguard.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s", httpguard.ErrAddressDenied)
	case errors.Is(err, errNotRedfish):
		return &actuator.Error{Class: actuator.Unreachable, Message: "the server at its address does not speak Redfish"}
	default:
		return noAnswer()
	}
}

// class returns the class of the response's error.
func (e *answerError) class() actuator.ErrorClass {
	return redfishErrors().ClassOf(errortable.Found{Code: e.code, Status: e.status, HasPause: e.retryAfter > 0})
}

// describe returns the status, with the controller's message if the administrator has listed the controller. The author
// of the ClusterDeployment chooses the address, and could otherwise read responses of other servers.
func (c *redfishController) describe(failure *answerError) string {
	const longest = 300
	status := fmt.Sprintf("status %d %s", failure.status, http.StatusText(failure.status))
	if !c.isTrusted || failure.message == "" {
		return status
	}
	message := strings.ReplaceAll(strings.ToValidUTF8(failure.message, ""), c.login.password, "<hidden>")
	message = regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}[T ]\S+`).ReplaceAllString(message, "<time>")
	message = strings.Join(strings.Fields(message), " ")
	if letters := []rune(message); len(letters) > longest {
		message = string(letters[:longest]) + "…"
	}
	return status + ": " + message
}
