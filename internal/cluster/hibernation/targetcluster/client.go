// SPDX-License-Identifier: Apache-2.0

// Package targetcluster is a client of the API servers of target clusters. It reads nodes, Machines and certificate
// requests, approves requests, drains workers, and writes other objects.
// A server belongs to a user of the hub and may be hostile, so every poll has a deadline and budgets of bytes, pages
// and items. A connection is closed after the first error and at each resume, because a connection from before a
// hibernation may hang.
//
// Reading order: pool.go (called by passes) → client.go (one connection) → server_override.go → list_items.go
// (budgets) → nodes.go, requests.go, machines.go, survey.go.
package targetcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/httpguard"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

const (
	// LookTimeout limits one poll of a cluster, including the actions before its reads.
	LookTimeout    = 10 * time.Second
	connectTimeout = 4 * time.Second
	callTimeout    = 5 * time.Second
	// idleTimeout is how long an unused connection is kept. Most running clusters are polled every ten minutes.
	idleTimeout = 30 * time.Second
	// maxPageBytes and maxLookBytes allow 5,000 nodes of 20 KiB each. Kubernetes supports no more nodes.
	maxPageBytes = 16 << 20
	maxLookBytes = 128 << 20
	// maxProbeBytes limits the size of responses whose body is discarded.
	maxProbeBytes = 64 << 10
)

// Dialer connects to clusters with kubeconfigs that users of the hub write.
type Dialer struct {
	// AllowInsecure permits kubeconfigs with plain http, unverified certificates, any proxy or impersonation.
	AllowInsecure bool
	// Proxies are the hosts of the proxies that are allowed as a kubeconfig's proxy-url.
	Proxies httpguard.Endpoints
	// Endpoints are the hosts that may be dialled although their addresses are link-local.
	Endpoints httpguard.Endpoints
}

// ClusterClient is a connection to one cluster, with the budgets of one poll.
type ClusterClient struct {
	rest      *rest.RESTClient
	config    *rest.Config
	transport *http.Transport
	wrapped   http.RoundTripper
	date      *firstDate
	// callTimeout limits each request including its response.
	callTimeout time.Duration
}

// firstDate stores the time of the server's first response, and the earliest expiry of the certificates that verified
// the server.
type firstDate struct {
	http.RoundTripper
	once         sync.Once
	date, expiry time.Time
}

// RoundTrip implements http.RoundTripper.
func (d *firstDate) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(r)
	if err == nil {
		d.once.Do(func() {
			d.date, _ = http.ParseTime(answer.Header.Get("Date"))
			if answer.TLS != nil {
				d.expiry = preflight.ServingExpiry(answer.TLS.VerifiedChains)
			}
		})
	}
	return answer, err
}

// FirstDate returns the time of the server's first response by the server's own clock. It is zero if the response had
// no Date header.
func (c *ClusterClient) FirstDate() time.Time { return c.date.date }

// Dial prepares the connection that a kubeconfig and an override of its server describe. It does not send anything
// yet.
func (d Dialer) Dial(kubeconfig []byte, override hibernation.ServerOverride) (*ClusterClient, error) {
	cfg, err := d.loadKubeconfig(kubeconfig, override)
	if err != nil {
		return nil, err
	}
	// A pass makes few requests, and its deadline must not be spent in a client-side rate limiter. Warnings from the
	// server would be written to the manager's log.
	cfg.QPS, cfg.WarningHandler, cfg.UserAgent = -1, rest.NoWarnings{}, buildinfo.UserAgent("torpor")
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, errUnreadable
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = utilnet.NewProxierWithNoProxyCIDR(http.ProxyFromEnvironment)
	}
	dial := (&net.Dialer{Timeout: connectTimeout, Control: d.Endpoints.ControlDial}).DialContext
	if override.Address != "" {
		// A proxy would resolve the URL's host, and would itself be dialled at the override's address.
		proxy, dial = nil, dialAddress(dial, override.Address)
	}
	// client-go caches its own transports and shares them between clients with the same configuration. A connection
	// from before the hibernation could then be reused and hang until its timeout.
	transport := &http.Transport{
		TLSClientConfig: tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTimeout, Proxy: proxy,
		DialContext: dial, IdleConnTimeout: idleTimeout,
	}
	httpguard.BoundTransport(transport)
	wrapped, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, errUnreadable
	}
	return (&ClusterClient{config: cfg, transport: transport, wrapped: wrapped, callTimeout: callTimeout}).renew()
}

// renew returns the same connection with new budgets.
func (c *ClusterClient) renew() (*ClusterClient, error) {
	next := *c
	next.date = &firstDate{RoundTripper: c.wrapped}
	r, err := rest.UnversionedRESTClientForConfigAndClient(c.config, httpguard.NewClient(next.date, maxPageBytes, maxLookBytes))
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	next.rest = r
	return &next, nil
}

// loadKubeconfig reads a kubeconfig and refuses settings that would let its author, or the author of the override,
// reach more than the cluster.
func (d Dialer) loadKubeconfig(kubeconfig []byte, override hibernation.ServerOverride) (*rest.Config, error) {
	if len(kubeconfig) > maxKubeconfigBytes {
		return nil, errUnreadable
	}
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The parser's error may quote the kubeconfig, including a private key.
		return nil, errUnreadable
	}
	if err := refuseForeign(raw); err != nil {
		return nil, err
	}
	if !d.AllowInsecure {
		if err := d.refuseInsecure(raw); err != nil {
			return nil, err
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errUnreadable
	}
	if err := d.overrideServer(cfg, override); err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, errUnreadable
	}
	return cfg, d.Endpoints.CheckHost(cmp.Or(override.Address, server.Hostname()))
}

// Close closes the idle connections.
func (c *ClusterClient) Close() { c.transport.CloseIdleConnections() }

// Probe returns an error if the API server is not ready.
func (c *ClusterClient) Probe(ctx context.Context) error {
	return c.discardAnswer(ctx, c.rest.Get().AbsPath("/readyz"))
}

// discardAnswer sends a request and discards the body of the response. It returns an error if the request fails.
func (c *ClusterClient) discardAnswer(ctx context.Context, request *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	// client-go must not wait for a retry that the server requests. The next pass retries.
	body, err := request.MaxRetries(0).Stream(ctx)
	if err != nil {
		return fmt.Errorf("query the server: %w", err)
	}
	defer func() { _ = body.Close() }()
	// One byte more than allowed is read to detect an oversized response.
	n, err := io.Copy(io.Discard, io.LimitReader(body, maxProbeBytes+1))
	if err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	if n > maxProbeBytes {
		return httpguard.ErrAnswerTooLarge
	}
	return nil
}

// versionGroupPath is the path of the API group of OpenShift's ClusterVersion, and versionPath that of the object.
const (
	versionGroupPath = "/apis/config.openshift.io/v1"
	versionPath      = versionGroupPath + "/clusterversions/version"
)

// maxVersionBytes is far more than a version needs. The limit exists because the version is written to the status.
const maxVersionBytes = 256

// ReadVersion returns the desired version in the status of an OpenShift cluster's ClusterVersion. isOpenShift is false
// for other clusters. If the kubeconfig's user has no permission to read the version, the version is empty, and a
// cluster counts as an OpenShift cluster unless it does not serve the API group of the ClusterVersion.
func (c *ClusterClient) ReadVersion(ctx context.Context) (version string, isOpenShift bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := c.rest.Get().AbsPath(versionPath).MaxRetries(0).Stream(ctx)
	switch {
	case k8serrors.IsNotFound(err):
		return "", false, nil
	case k8serrors.IsForbidden(err):
		// An API server checks permissions first, so it also refuses paths that it does not serve. By default, every
		// user may read which groups are served.
		return "", !k8serrors.IsNotFound(c.discardAnswer(ctx, c.rest.Get().AbsPath(versionGroupPath))), nil
	case err != nil:
		return "", false, fmt.Errorf("read the version: %w", err)
	}
	defer func() { _ = body.Close() }()
	var answer struct {
		Status struct {
			Desired struct {
				Version string `json:"version"`
			} `json:"desired"`
		} `json:"status"`
	}
	if err := json.NewDecoder(io.LimitReader(body, maxItemBytes)).Decode(&answer); err != nil {
		return "", true, malformedUnlessBroken(err)
	}
	if version = answer.Status.Desired.Version; len(version) > maxVersionBytes {
		return "", true, errMalformed
	}
	return version, true, nil
}
