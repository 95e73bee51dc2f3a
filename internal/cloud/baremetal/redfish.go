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
	"github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/egress"
)

const (
	// maxAnswerBytes is for the description of a machine, which has some ten thousand bytes.
	maxAnswerBytes = 1 << 20
	// maxConnections is how many connections a controller gets: they are weak.
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

func newRedfishController(address bmcAddress, l login, endpoints egress.Endpoints) *redfishController {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: l.roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost: maxConnections, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
	}
	egress.BoundTransport(transport)
	return &redfishController{url: "https://" + address.hostPort + address.system, login: l, http: egress.NewClient(transport, maxAnswerBytes, 0)}
}

// computerSystem is the description of a machine, as far as Torpor reads it (DMTF DSP0268).
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
		return seen, actuator.Errorf(actuator.Other, "its controller cannot %s: it has no ResetType %s", order, reset)
	}
	// The description says where the action is, and this is where it always is; a password follows no answer.
	if err := c.send(ctx, http.MethodPost, "/Actions/ComputerSystem.Reset", map[string]string{"ResetType": reset}, nil); err != nil {
		return seen, c.explainError(string(order), err)
	}
	return seen, nil
}

// stateOf returns what a machine does.
func stateOf(power string) actuator.MachineState {
	switch power {
	case "On", "Paused":
		return actuator.Running
	case "Off":
		return actuator.Stopped
	case "PoweringOff":
		return actuator.Stopping
	default:
		return actuator.Starting // PoweringOn, none while the controller itself starts, and what is unknown: neither on nor off.
	}
}

var errNotRedfish = errors.New("the answer is not one of Redfish")

// answerError is an answer that is no success.
type answerError struct {
	status     int
	message    string
	retryAfter time.Duration
}

// Error implements error.
func (e *answerError) Error() string { return fmt.Sprintf("status %d", e.status) }

// send sends a request for the machine, and reads the JSON of the answer into result unless that is nil.
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
		return fmt.Errorf("make the request: %w", err)
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
	defer func() { _ = answer.Body.Close() }() // What was read counts.
	text, err := io.ReadAll(answer.Body)       // Its size is the transport's matter.
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case answer.StatusCode >= http.StatusMultipleChoices:
		return readFailure(answer, text)
	case result == nil || json.Unmarshal(text, result) == nil:
		return nil // Also 202: what becomes of the task shows at the machine.
	case ctx.Err() != nil:
		return fmt.Errorf("read the answer: %w", ctx.Err()) // It came because the visit ended, as that of a server whose handler returns then.
	default:
		return errNotRedfish
	}
}

func readFailure(answer *http.Response, text []byte) error {
	failure := &answerError{status: answer.StatusCode, retryAfter: (&rest.StatusError{Header: answer.Header}).RetryAfter()}
	var content struct {
		Error struct {
			Message  string `json:"message"`
			Extended []struct {
				Message string `json:"Message"`
			} `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &content) == nil { // An answer without words still has its status.
		failure.message = content.Error.Message
		if len(content.Error.Extended) > 0 && content.Error.Extended[0].Message != "" {
			failure.message = content.Error.Extended[0].Message // The other one only says that there is this one.
		}
	}
	return failure
}

// explainError turns an error into an *actuator.Error with a message that is the same each time.
func (c *redfishController) explainError(order string, err error) error {
	if failure, ok := errors.AsType[*answerError](err); ok {
		return &actuator.Error{Class: failure.class(), Message: "its controller does not " + order + ": " + c.describe(failure), RetryAfter: failure.retryAfter}
	}
	unverified, isUnverified := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case isUnverified && unverified != nil:
		return actuator.Errorf(actuator.CredentialsInvalid, "the certificate of its controller is not one of %s in the credentials Secret, or not for its address: correct them", authorityKey)
	case errors.Is(err, egress.ErrAnswerTooLarge):
		return &actuator.Error{Class: actuator.Unreachable, Message: "the answer of its controller is larger than allowed"}
	case errors.Is(err, egress.ErrAddressDenied):
		return actuator.Errorf(actuator.Other, "%s", egress.ErrAddressDenied)
	case errors.Is(err, errNotRedfish):
		return &actuator.Error{Class: actuator.Unreachable, Message: "what answers at its address does not speak Redfish"}
	default:
		return noAnswer()
	}
}

// class sorts answers by what can be done about them.
func (e *answerError) class() actuator.ErrorClass {
	switch {
	case e.status == http.StatusUnauthorized:
		return actuator.CredentialsInvalid
	case e.status == http.StatusForbidden:
		return actuator.PermissionDenied
	case e.status == http.StatusNotFound:
		return actuator.NotFound
	case e.status == http.StatusConflict:
		return actuator.WrongState
	case e.status == http.StatusTooManyRequests, e.status == http.StatusServiceUnavailable && e.retryAfter > 0:
		return actuator.Throttled
	case e.status >= http.StatusInternalServerError, e.status < http.StatusBadRequest:
		return actuator.Unreachable
	default:
		return actuator.Other
	}
}

// describe returns what a controller says, if the administrator lists it: whoever writes the ClusterDeployment chooses it, and could read
// other servers by their answers.
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
