// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes allows a listing of about ten thousand containers.
	maxAnswerBytes = 16 << 20
	dialTimeout    = 10 * time.Second
)

// engineClient accesses one engine.
type engineClient struct {
	// account is the client's public name: a hash of all fields that identify it.
	account string
	// owner identifies the engine among the accounts of all clouds.
	owner string
	base  url.URL
	// isTrusted reports whether the administrator has listed the engine. Messages of other engines are not shown.
	isTrusted         bool
	http              *http.Client
	timeout, patience time.Duration
	stops             *onebyone.PendingStops
}

// clientFor returns the client for the target's engine. If the Secret changes, a new client is created.
func (a *Actuator) clientFor(t actuator.Target) (*engineClient, error) {
	address, err := parseAddress(t.Cloud)
	if err != nil {
		return nil, err
	}
	if err := a.options.allowAddress(address, t); err != nil {
		return nil, err
	}
	fields := []string{t.Cloud}
	if address.socket != "" {
		fields = append(fields, t.Role.Namespace)
	} else {
		fields = append(fields, string(t.Credentials[certificateKey]), string(t.Credentials[privateKeyKey]), string(t.Credentials[authorityKey]))
	}
	return a.clients.GetOrBuild(t.Namespace, fields, func(name string) (*engineClient, error) { return a.newClient(address, t, name) })
}

func (a *Actuator) newClient(address engineAddress, t actuator.Target, account string) (*engineClient, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: a.options.Endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns: onebyone.ParallelCalls, MaxIdleConnsPerHost: onebyone.ParallelCalls, IdleConnTimeout: 90 * time.Second,
	}
	c := &engineClient{
		account: account, owner: "containers/" + t.Cloud, base: url.URL{Scheme: "https", Host: address.host},
		timeout: a.options.CallTimeout, patience: a.options.StopPatience,
		stops:     &onebyone.PendingStops{Clock: a.options.Clock, Window: stopGrace + stopMargin},
		isTrusted: address.socket != "" || a.options.Endpoints.Includes((&url.URL{Host: address.host}).Hostname()),
	}
	if address.socket != "" {
		c.base = url.URL{Scheme: "http", Host: "localhost"}
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", address.socket)
		}
	} else {
		settings, err := readCredentials(t.Credentials)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = settings
	}
	httpguard.BoundTransport(transport)
	c.http = httpguard.NewClient(transport, maxAnswerBytes, 0)
	return c, nil
}

// Name implements cloudrest.OneByOneAccount.
func (c *engineClient) Name() string { return c.account }

// RequireStopRights implements cloudrest.OneByOneAccount. A client of an engine has all rights on the engine.
func (*engineClient) RequireStopRights(context.Context, []string) error { return nil }

// send sends a request, and reads a successful response with read. For a status of 300 or above it returns an
// *answerError, except for 304.
func (c *engineClient) send(ctx context.Context, method, path string, query url.Values, read func(io.Reader) error) error {
	u := c.base
	u.Path, u.RawQuery = path, query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return fmt.Errorf("create the request: %w", err)
	}
	r.Header.Set("User-Agent", buildinfo.UserAgent("torpor"))
	answer, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // An error of Close loses nothing.
	switch {
	case answer.StatusCode == http.StatusNotModified: // The container already has the wanted state.
		return nil
	case answer.StatusCode >= http.StatusMultipleChoices:
		content, err := io.ReadAll(answer.Body) // The transport limits the size of the response.
		if err != nil {
			return fmt.Errorf("read the response: %w", err)
		}
		return readFailure(answer, content)
	case read == nil:
		return nil
	default:
		return read(answer.Body)
	}
}

// call makes the API calls of do within the client's timeout.
func (c *engineClient) call(ctx context.Context, operation string, do func(context.Context) error) error {
	return cloudrest.CallWithTimeout(ctx, c.timeout, do, func(err error) error { return c.explainError(operation, err) })
}
