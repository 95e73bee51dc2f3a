// SPDX-License-Identifier: Apache-2.0

// Package targetcluster is a client of the API server of a cluster that hibernates or resumes: it probes it, lists nodes and
// certificate requests, and approves. Every call has a deadline, and no connection outlives a pass: after a hibernation
// nothing of the old ones can be trusted.
package targetcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	connectTimeout = 2 * time.Second
	callTimeout    = 5 * time.Second
	pageSize       = 500
)

// ClusterClient is a connection to one cluster for one pass.
type ClusterClient struct {
	rest      *rest.RESTClient
	dynamic   dynamic.Interface
	transport *http.Transport
}

// Dial prepares the connection that a kubeconfig describes; nothing is sent yet.
func Dial(kubeconfig []byte) (*ClusterClient, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The parser's own words may quote the kubeconfig, and with it a key.
		return nil, errUnreadable
	}
	if err := refuseForeign(raw); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errUnreadable
	}
	// A pass makes few calls, and its deadline shall not be spent in a client-side rate limiter.
	cfg.QPS = -1
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, errUnreadable
	}
	// client-go caches the transports that it makes itself and shares them between clients of the same configuration, so a
	// connection from before the hibernation could be used again and hang until its timeout.
	transport := &http.Transport{
		TLSClientConfig: tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTimeout, Proxy: cfg.Proxy,
		DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext,
	}
	wrapped, err := rest.HTTPWrappersForConfig(cfg, transport)
	if err != nil {
		return nil, errUnreadable
	}
	return newClusterClient(cfg, transport, &http.Client{Transport: wrapped, Timeout: callTimeout})
}

func newClusterClient(cfg *rest.Config, transport *http.Transport, httpClient *http.Client) (*ClusterClient, error) {
	r, err := rest.UnversionedRESTClientForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	return &ClusterClient{rest: r, dynamic: d, transport: transport}, nil
}

// Close closes the connections.
func (c *ClusterClient) Close() { c.transport.CloseIdleConnections() }

// Probe returns an error unless the API server is ready.
func (c *ClusterClient) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.rest.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
}

var (
	errUnreadable = errors.New("the kubeconfig cannot be read; expected a kubeconfig with a current context, a server and credentials")
	errForeign    = errors.New("the kubeconfig refers to files, programs or plugins; expected certificates, keys or tokens embedded in it")
)

// refuseForeign refuses what would run programs or read files of this machine: the kubeconfig comes from a Secret that a
// user of the hub may write.
func refuseForeign(c *clientcmdapi.Config) error {
	// Every entry is looked at, so that what is refused does not depend on the current context.
	for _, a := range c.AuthInfos {
		if a.Exec != nil || a.AuthProvider != nil || a.TokenFile != "" || a.ClientCertificate != "" || a.ClientKey != "" {
			return errForeign
		}
	}
	for _, cluster := range c.Clusters {
		if cluster.CertificateAuthority != "" {
			return errForeign
		}
	}
	return nil
}

// listPages calls visit with each page of a list; only the last page has no continue token.
func listPages[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, c *ClusterClient, path string, visit func(page P)) error {
	next := ""
	for {
		page := P(new(L))
		if err := c.readPage(ctx, path, next, page); err != nil {
			return err
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

func (c *ClusterClient) readPage(ctx context.Context, path, next string, into runtime.Object) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A server that asks to come back later is asked again by the next pass.
	r := c.rest.Get().AbsPath(path).Param("limit", strconv.Itoa(pageSize)).MaxRetries(0)
	if next != "" {
		r = r.Param("continue", next)
	}
	return r.Do(ctx).Into(into)
}
