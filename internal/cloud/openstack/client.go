// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cloud/onebyone"
	cloudrest "github.com/torpor-dev/torpor/internal/cloud/rest"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

const (
	// maxAnswerBytes allows a page of 500 servers of 16 KiB each.
	maxAnswerBytes = 8 << 20
)

// projectClient accesses a project's servers in a region.
type projectClient struct {
	settings cloudSettings
	// account is the client's public name: a hash of all fields that identify it.
	account string
	// isTrusted reports whether the administrator has listed the servers. Messages of other servers are not shown.
	isTrusted bool
	hosts     *ownHosts
	endpoints httpguard.Endpoints
	timeout   time.Duration
	provider  *gophercloud.ProviderClient
	// shelves reports whether servers are shelved instead of stopped. unshelved contains the servers that the cloud
	// was ordered to unshelve.
	shelves   bool
	unshelved onebyone.PendingStarts

	// loggingIn allows one login at a time. compute is nil before the first login.
	loggingIn *semaphore.Weighted
	mu        sync.Mutex
	compute   *gophercloud.ServiceClient
	// owner identifies the project among the accounts of all clouds.
	owner string
}

// newTransport returns a transport with limits. If roots is nil, the system's roots are used.
func newTransport(endpoints httpguard.Endpoints, roots *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: endpoints.ControlDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns: 100, MaxIdleConnsPerHost: onebyone.ParallelCalls, IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
	httpguard.BoundTransport(transport)
	return transport
}

// ownHosts sends requests only to the servers of one cloud. The URL of the next page comes from a response, and the
// request to it contains a token.
type ownHosts struct {
	base http.RoundTripper

	mu      sync.Mutex
	origins []string
}

// RoundTrip implements http.RoundTripper.
func (o *ownHosts) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	isOwn := slices.Contains(o.origins, originOf(r.URL))
	o.mu.Unlock()
	if !isOwn {
		return nil, errForeignHost
	}
	answer, err := o.base.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	return answer, nil
}

func (o *ownHosts) add(u *url.URL) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if origin := originOf(u); !slices.Contains(o.origins, origin) {
		o.origins = append(o.origins, origin)
	}
}

func originOf(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }

// errForeignHost means that a request was not sent, because its host does not belong to the cloud.
var errForeignHost = errors.New("the host is neither that of auth_url nor that of the compute service")

// clientFor returns the client for the target's cloud. If the Secret changes, a new client is created.
func (a *Actuator) clientFor(t actuator.Target) (*projectClient, error) {
	s, err := readCredentials(t.Credentials, t.Cloud)
	if err != nil {
		return nil, err
	}
	// Clusters with shelved servers must not share a client with clusters with stopped servers.
	fields := []string{
		s.Auth.AuthURL, s.Auth.Username, s.Auth.UserID, s.Auth.Password, s.Auth.UserDomainName, s.Auth.UserDomainID, s.Auth.DomainName, s.Auth.DomainID,
		s.Auth.ProjectName, s.Auth.ProjectID, s.Auth.ProjectDomainName, s.Auth.ProjectDomainID, s.Auth.CredentialID, s.Auth.CredentialName,
		s.Auth.CredentialSecret, s.RegionName, s.availability(), s.rootsPEM, strconv.FormatBool(t.FreesCapacity),
	}
	return a.clients.GetOrBuild(t.Namespace, fields, func(name string) (*projectClient, error) { return a.newClient(s, name, t.FreesCapacity) })
}

func (a *Actuator) newClient(s cloudSettings, account string, shelves bool) (*projectClient, error) {
	u, err := url.Parse(s.Auth.AuthURL)
	if err != nil {
		return nil, actuator.Errorf(actuator.CredentialsInvalid, "auth_url in %s of the credentials Secret is not a URL: correct it", cloudsKey)
	}
	base := a.options.Transport
	if s.roots != nil {
		base = newTransport(a.options.Endpoints, s.roots)
	}
	c := &projectClient{
		settings: s, account: account, hosts: &ownHosts{base: base}, endpoints: a.options.Endpoints, timeout: a.options.CallTimeout,
		loggingIn: semaphore.NewWeighted(1), shelves: shelves, unshelved: onebyone.NewPendingStarts(clock.RealClock{}), isTrusted: a.options.Endpoints.Includes(u.Hostname()),
	}
	if err := c.allowHost(u, "auth_url in "+cloudsKey+" of the credentials Secret"); err != nil {
		return nil, err
	}
	if c.provider, err = openstack.NewClient(s.Auth.AuthURL); err != nil {
		return nil, actuator.Errorf(actuator.CredentialsInvalid, "auth_url in %s of the credentials Secret is not the URL of an identity service: correct it", cloudsKey)
	}
	c.provider.HTTPClient = *httpguard.NewClient(c.hosts, maxAnswerBytes, 0)
	c.provider.UserAgent.Prepend("torpor/" + buildinfo.ReadVersion().Version)
	return c, nil
}

// allowHost allows requests to a server, or returns an error if a Secret or the cloud's catalog may not refer to it. A
// user who may write a Secret must not be able to reach or read servers in the manager's network.
func (c *projectClient) allowHost(u *url.URL, where string) error {
	if err := c.endpoints.CheckHost(u.Hostname()); err != nil {
		return actuator.Errorf(actuator.Other, "%s: %.100s: %s", where, u.Hostname(), err)
	}
	if !c.endpoints.IsEmpty() && !c.endpoints.Includes(u.Hostname()) {
		return actuator.Errorf(actuator.Other, "%s: expected a server that --allow-endpoints lists, found %.100s: correct it, or ask the administrator to list the server", where, u.Hostname())
	}
	c.hosts.add(u)
	return nil
}

// Name implements cloudrest.OneByOneAccount.
func (c *projectClient) Name() string { return c.account }

// RequireStopRights implements cloudrest.OneByOneAccount. OpenStack does not report missing rights in advance.
func (*projectClient) RequireStopRights(context.Context, []string) error { return nil }

// computeService returns the client of the compute service. It logs in before the first use. The library logs in
// again when a token is refused.
func (c *projectClient) computeService(ctx context.Context) (*gophercloud.ServiceClient, error) {
	if known := c.knownService(); known != nil {
		return known, nil
	}
	if err := c.loggingIn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.loggingIn.Release(1)
	if known := c.knownService(); known != nil {
		return known, nil
	}
	if err := openstack.AuthenticateV3(ctx, c.provider, c.settings.loginOptions(), gophercloud.EndpointOpts{}); err != nil {
		return nil, &loginError{err}
	}
	result, ok := c.provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil, errNotOpenStack
	}
	compute, err := c.findComputeService(result)
	if err != nil {
		return nil, err
	}
	project, err := result.ExtractProject()
	if err != nil || project == nil || project.ID == "" {
		return nil, actuator.Errorf(actuator.CredentialsInvalid, "login: the token belongs to no project, but servers belong to a project: add project_id to %s", cloudsKey)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compute, c.owner = compute, "openstack/"+compute.Endpoint+"/"+project.ID
	return compute, nil
}

func (c *projectClient) knownService() *gophercloud.ServiceClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compute
}

// findComputeService finds the compute service in the catalog of the login. The library's own function is not used,
// because it requests the service's versions without a deadline.
func (c *projectClient) findComputeService(result tokens.CreateResult) (*gophercloud.ServiceClient, error) {
	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil, errNotOpenStack
	}
	for _, entry := range catalog.Entries {
		for _, e := range entry.Endpoints {
			region := c.settings.RegionName
			if entry.Type != "compute" || e.Interface != c.settings.availability() || region != "" && region != e.Region && region != e.RegionID {
				continue
			}
			u, err := url.Parse(e.URL)
			if err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Hostname() == "" || u.User != nil {
				return nil, errNotOpenStack
			}
			if c.settings.isEncrypted() && u.Scheme != "https" {
				return nil, actuator.Errorf(actuator.Other, "the catalog of the cloud lists a compute service without TLS, but auth_url has TLS: no token is sent there")
			}
			if err := c.allowHost(u, "the compute service in the catalog of the cloud"); err != nil {
				return nil, err
			}
			return &gophercloud.ServiceClient{ProviderClient: c.provider, Endpoint: gophercloud.NormalizeURL(e.URL), Type: "compute"}, nil
		}
	}
	return nil, actuator.Errorf(actuator.Other, "expected a compute service with the interface %s and the region %.60q in the catalog of the cloud, found none: correct region_name in %s",
		c.settings.availability(), c.settings.RegionName, cloudsKey)
}

// call makes the API calls of do within the timeout atMost, including the login.
func (c *projectClient) call(ctx context.Context, operation string, atMost time.Duration, do func(context.Context, *gophercloud.ServiceClient) error) error {
	return cloudrest.CallWithTimeout(ctx, atMost, func(ctx context.Context) error {
		compute, err := c.computeService(ctx)
		if err != nil {
			return err
		}
		return do(ctx, compute)
	}, func(err error) error { return c.explainError(operation, err) })
}
