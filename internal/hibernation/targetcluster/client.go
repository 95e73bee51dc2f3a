// SPDX-License-Identifier: Apache-2.0

// Package targetcluster talks to the API server of a cluster that hibernates or wakes: it probes it, reads its nodes and
// certificate requests, and approves. Every call has a deadline, and no connection outlives a pass: after a sleep
// nothing of the old ones can be trusted.
package targetcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// Dial prepares the connection that a kubeconfig describes; nothing is sent yet. The kubeconfig comes from a Secret,
// so what would run programs or read files of this machine is refused.
func Dial(kubeconfig []byte) (*ClusterClient, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errUnreadable
	}
	if err := refuseForeign(raw); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errUnreadable
	}
	cfg.QPS = -1
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, errUnreadable
	}
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

func newClusterClient(cfg *rest.Config, transport *http.Transport, client *http.Client) (*ClusterClient, error) {
	r, err := rest.UnversionedRESTClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	d, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("make dynamic client: %w", err)
	}
	return &ClusterClient{rest: r, dynamic: d, transport: transport}, nil
}

// Close ends the connections.
func (c *ClusterClient) Close() { c.transport.CloseIdleConnections() }

// Probe asks whether the API server is ready.
func (c *ClusterClient) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.rest.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
}

var (
	errUnreadable = errors.New("the kubeconfig cannot be read; expected a kubeconfig with a current context, a server and credentials")
	errForeign    = errors.New("the kubeconfig refers to files, programs or plugins; expected certificates, keys or tokens embedded in it")
)

func refuseForeign(c *clientcmdapi.Config) error {
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
