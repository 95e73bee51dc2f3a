// SPDX-License-Identifier: Apache-2.0

// Package targetcluster is a client of the API server of a cluster that hibernates or resumes: it probes it, lists nodes and
// certificate requests, and approves. The server belongs to a user of the hub and may be hostile, so every look has a deadline
// and budgets of bytes, pages and items. A connection ends with the first error and with each wake-up: after a hibernation nothing of
// the old ones can be trusted.
//
// Reading order: pool.go (what passes call) → client.go (one connection) → list_items.go (budgets) → nodes.go, requests.go, machines.go,
// survey.go.
package targetcluster

import (
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
	"github.com/torpor-dev/torpor/internal/egress"
	"github.com/torpor-dev/torpor/internal/stopcheck"
)

const (
	// LookTimeout bounds everything that is read from a cluster in one pass.
	LookTimeout    = 10 * time.Second
	connectTimeout = 4 * time.Second
	callTimeout    = 5 * time.Second
	// idleTimeout is how long a connection stays that nobody uses: most clusters that run are looked at every ten minutes.
	idleTimeout = 30 * time.Second
	// maxPageBytes and maxLookBytes are for 5,000 nodes, the most that Kubernetes supports, of 20 KiB each.
	maxPageBytes = 16 << 20
	maxLookBytes = 128 << 20
	// maxProbeBytes bounds answers that nobody reads.
	maxProbeBytes = 64 << 10
)

// Dialer makes connections to clusters by kubeconfigs that users of the hub write.
type Dialer struct {
	// AllowInsecure takes kubeconfigs with plain http, unverified certificates, a proxy of their own or impersonation.
	AllowInsecure bool
	// Endpoints may be dialled although their addresses are link-local.
	Endpoints egress.Endpoints
}

// ClusterClient is a connection to one cluster, with the budgets of one look.
type ClusterClient struct {
	rest      *rest.RESTClient
	config    *rest.Config
	transport *http.Transport
	wrapped   http.RoundTripper
	date      *firstDate
	// callTimeout bounds each call with its answer.
	callTimeout time.Duration
}

// firstDate keeps what the server's first answer says the time is, and when the first certificate expires that it was verified by.
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
				d.expiry = stopcheck.ServingExpiry(answer.TLS.VerifiedChains)
			}
		})
	}
	return answer, err
}

// FirstDate is the time of the server's first answer by its own clock; zero if it has not said so.
func (c *ClusterClient) FirstDate() time.Time { return c.date.date }

// Dial prepares the connection that a kubeconfig describes; nothing is sent yet.
func (d Dialer) Dial(kubeconfig []byte) (*ClusterClient, error) {
	cfg, err := d.loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	// A pass makes few calls, and its deadline shall not be spent in a client-side rate limiter. Warnings of the server would
	// go to the manager's log.
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
	// client-go caches the transports that it makes itself and shares them between clients of the same configuration, so a
	// connection from before the hibernation could be used again and hang until its timeout.
	transport := &http.Transport{
		TLSClientConfig: tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTimeout, Proxy: proxy,
		DialContext: (&net.Dialer{Timeout: connectTimeout, Control: d.Endpoints.ControlDial}).DialContext, IdleConnTimeout: idleTimeout,
	}
	egress.BoundTransport(transport)
	wrapped, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, errUnreadable
	}
	return (&ClusterClient{config: cfg, transport: transport, wrapped: wrapped, callTimeout: callTimeout}).renew()
}

// renew returns the same connection with budgets of its own.
func (c *ClusterClient) renew() (*ClusterClient, error) {
	next := *c
	next.date = &firstDate{RoundTripper: c.wrapped}
	r, err := rest.UnversionedRESTClientForConfigAndClient(c.config, egress.NewClient(next.date, maxPageBytes, maxLookBytes))
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	next.rest = r
	return &next, nil
}

// loadKubeconfig reads a kubeconfig and refuses what would let its author reach more than the cluster.
func (d Dialer) loadKubeconfig(kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) > maxKubeconfigBytes {
		return nil, errUnreadable
	}
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The parser's own words may quote the kubeconfig, and with it a key.
		return nil, errUnreadable
	}
	if err := refuseForeign(raw); err != nil {
		return nil, err
	}
	if !d.AllowInsecure {
		if err := refuseInsecure(raw); err != nil {
			return nil, err
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errUnreadable
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, errUnreadable
	}
	return cfg, d.Endpoints.CheckHost(server.Hostname())
}

// Close closes the connections.
func (c *ClusterClient) Close() { c.transport.CloseIdleConnections() }

// Probe returns an error unless the API server is ready.
func (c *ClusterClient) Probe(ctx context.Context) error {
	return c.discardAnswer(ctx, c.rest.Get().AbsPath("/readyz"))
}

// discardAnswer sends a request of whose answer only the status matters.
func (c *ClusterClient) discardAnswer(ctx context.Context, request *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	// A server that asks to come back later is asked again by the next pass.
	body, err := request.MaxRetries(0).Stream(ctx)
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	defer func() { _ = body.Close() }()
	// An answer of one byte more than allowed is too large.
	n, err := io.Copy(io.Discard, io.LimitReader(body, maxProbeBytes+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if n > maxProbeBytes {
		return egress.ErrAnswerTooLarge
	}
	return nil
}

// versionPath is served by OpenShift.
const versionPath = "/apis/config.openshift.io/v1/clusterversions/version"

// maxVersionBytes is far more than a version needs, because it is written into the status.
const maxVersionBytes = 256

// ReadVersion returns the version that an OpenShift cluster is at or goes to; false if the cluster is none. A version that may not be
// read is empty.
func (c *ClusterClient) ReadVersion(ctx context.Context) (version string, isOpenShift bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := c.rest.Get().AbsPath(versionPath).MaxRetries(0).Stream(ctx)
	switch {
	case k8serrors.IsNotFound(err):
		return "", false, nil
	case k8serrors.IsForbidden(err):
		return "", true, nil
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
