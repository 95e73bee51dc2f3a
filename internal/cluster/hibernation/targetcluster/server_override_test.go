// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// namedServer is an API server with a certificate for example.com and 127.0.0.1. It records the names by which
// clients dial it.
type namedServer struct {
	*httptest.Server
	port        string
	connections atomic.Int64
	host, name  atomic.Value
}

func startNamedServer(t *testing.T) *namedServer {
	t.Helper()
	s := &namedServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.host.Store(r.Host)
		s.name.Store(r.TLS.ServerName)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // Some clients reject the certificate.
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	address, err := url.Parse(s.URL)
	must(t, err)
	s.port = address.Port()
	return s
}

func TestOverridesAreDialled(t *testing.T) {
	const dead = "https://127.0.0.1:1"
	for name, row := range map[string]struct {
		kubeconfig string
		override   func(port string) hibernation.ServerOverride
		edit       func(*clientcmdapi.Cluster)
		dialer     Dialer
		// host is the Host header without its port, and server the TLS name, as the server receives them.
		host, server string
		want         string
	}{
		"server of the kubeconfig is dialed without an override":              {kubeconfig: dead, want: "the connection is refused"},
		"URL override with a URL is dialed":                                   {kubeconfig: dead, override: overrideURL("https://127.0.0.1:"), host: "127.0.0.1"},
		"URL override with a host and port is dialed":                         {kubeconfig: dead, override: overrideURL("127.0.0.1:"), host: "127.0.0.1"},
		"URL override with a host that is not in the certificate is an error": {kubeconfig: dead, override: overrideURL("localhost:"), want: "the server's certificate is for another name"},
		"URL override is verified by the TLS name in the kubeconfig": {
			kubeconfig: dead, override: overrideURL("localhost:"), edit: func(c *clientcmdapi.Cluster) { c.TLSServerName = "example.com" }, host: "localhost", server: "example.com",
		},
		"IP override is dialed with the host name of the kubeconfig": {kubeconfig: "https://example.com:PORT", override: overrideAddress("127.0.0.1"), host: "example.com", server: "example.com"},
		"IP override of a server with a certificate for another name is an error": {
			kubeconfig: "https://another.example:PORT", override: overrideAddress("127.0.0.1"), want: "the server's certificate is for another name",
		},
		"IP override with an unreachable address is an error": {kubeconfig: "https://127.0.0.1:PORT", override: overrideAddress("127.0.0.9"), want: "the connection is refused"},
		"IP override bypasses the proxy in the kubeconfig": {
			kubeconfig: "https://example.com:PORT", override: overrideAddress("127.0.0.1"), dialer: Dialer{AllowInsecure: true},
			edit: func(c *clientcmdapi.Cluster) { c.ProxyURL = dead }, host: "example.com", server: "example.com",
		},
		"IP override is dialed with the host name of the URL override": {
			kubeconfig: dead, host: "example.com", server: "example.com",
			override: func(port string) hibernation.ServerOverride {
				return hibernation.ServerOverride{URL: "example.com:" + port, Address: "127.0.0.1"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startNamedServer(t)
			var override hibernation.ServerOverride
			if row.override != nil {
				override = row.override(s.port)
			}
			c, err := row.dialer.Dial(kubeconfig(t, strings.Replace(row.kubeconfig, "PORT", s.port, 1), func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo, _ *clientcmdapi.Config) {
				c.CertificateAuthorityData = encodeCertificate(s.Certificate())
				if row.edit != nil {
					row.edit(c)
				}
			}), override)
			must(t, err)
			defer c.Close()
			if err := c.Probe(t.Context()); row.want != "" {
				if err == nil || DescribeError(err) != row.want {
					t.Errorf("expected %q, found %v", row.want, err)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if host, name := s.host.Load(), s.name.Load(); host != net.JoinHostPort(row.host, s.port) || name != row.server {
				t.Errorf("expected the host %s and the TLS name %q, found %s and %q", row.host, row.server, host, name)
			}
		})
	}
}

func overrideURL(prefix string) func(string) hibernation.ServerOverride {
	return func(port string) hibernation.ServerOverride { return hibernation.ServerOverride{URL: prefix + port} }
}

func overrideAddress(address string) func(string) hibernation.ServerOverride {
	return func(string) hibernation.ServerOverride { return hibernation.ServerOverride{Address: address} }
}

// TestOverridesAreRefused checks that no token reaches a server that the kubeconfig does not verify.
func TestOverridesAreRefused(t *testing.T) {
	s := startNamedServer(t)
	authority := func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = encodeCertificate(s.Certificate()) }
	none := func(*clientcmdapi.Cluster) {}
	for name, row := range map[string]struct {
		override hibernation.ServerOverride
		edit     func(*clientcmdapi.Cluster)
		want     error
	}{
		"URL override without a certificate authority is refused":                    {hibernation.ServerOverride{URL: s.URL}, none, errUnverifiedOverride},
		"URL override of a host and port without a certificate authority is refused": {hibernation.ServerOverride{URL: "127.0.0.1:" + s.port}, none, errUnverifiedOverride},
		"URL override with a certificate authority is accepted":                      {hibernation.ServerOverride{URL: s.URL}, authority, nil},
		"URL override with a TLS server name is accepted":                            {hibernation.ServerOverride{URL: s.URL}, func(c *clientcmdapi.Cluster) { c.TLSServerName = "example.com" }, nil},
		"IP override without a certificate authority is accepted":                    {hibernation.ServerOverride{Address: "127.0.0.1"}, none, nil},
		"URL override with plain http is refused":                                    {hibernation.ServerOverride{URL: "http://127.0.0.1:" + s.port}, authority, errInsecureOverride},
		"URL override of a metadata service is refused":                              {hibernation.ServerOverride{URL: "https://169.254.169.254"}, authority, httpguard.ErrAddressDenied},
		"IP override of a metadata service is refused":                               {hibernation.ServerOverride{Address: "169.254.169.254"}, authority, httpguard.ErrAddressDenied},
		"IP override with the IPv6 form of a metadata service's address is refused":  {hibernation.ServerOverride{Address: "::ffff:169.254.169.254"}, authority, httpguard.ErrAddressDenied},
		"URL override together with an IP override of a metadata service is refused": {hibernation.ServerOverride{URL: s.URL, Address: "169.254.169.254"}, authority, httpguard.ErrAddressDenied},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := (Dialer{}).Dial(kubeconfig(t, "https://127.0.0.1:1", func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo, _ *clientcmdapi.Config) { row.edit(c) }), row.override)
			if !errors.Is(err, row.want) {
				t.Errorf("expected %v, found %v", row.want, err)
			}
			if err == nil {
				c.Close()
			} else if DescribeError(err) != row.want.Error() || !IsLasting(err) {
				t.Errorf("expected a lasting error with its own words, found %q", DescribeError(err))
			}
		})
	}
	for name, override := range map[string]hibernation.ServerOverride{"text that is not a URL is refused": {URL: "not a URL"}, "host name instead of an address is refused": {Address: "example.com"}} {
		t.Run(name, func(t *testing.T) {
			_, err := (Dialer{AllowInsecure: true}).Dial(kubeconfig(t, s.URL, nil), override)
			if err == nil || DescribeError(err) != override.Check().Error() || !IsKubeconfigRefused(err) {
				t.Errorf("expected %v, found %v", override.Check(), err)
			}
		})
	}
	if n := s.connections.Load(); n != 0 {
		t.Errorf("expected no connection, found %d", n)
	}
}

// TestPoolKeepsServersApart polls one cluster with changing overrides.
func TestPoolKeepsServersApart(t *testing.T) {
	p := startPool(t)
	kubeconfigServer, override := p.add("cluster"), startPoolServer(t)
	q := question("cluster", ReadAPI)
	if seen := p.look(q); seen.Err != nil || kubeconfigServer.connections.Load() != 1 {
		t.Fatalf("expected an answer by one connection, found %v by %d", seen.Err, kubeconfigServer.connections.Load())
	}
	q.Override = hibernation.ServerOverride{URL: override.URL}
	if seen := p.look(q); seen.Err == nil || seen.Override != q.Override {
		t.Errorf("expected the kubeconfig without an authority to be refused, found %+v", seen)
	}
	q.Override = hibernation.ServerOverride{Address: "127.0.0.1"}
	if seen := p.look(q); seen.Err != nil || seen.Override != q.Override || kubeconfigServer.connections.Load() != 2 {
		t.Errorf("expected an answer by a second connection, found %v by %d", seen.Err, kubeconfigServer.connections.Load())
	}
	if n := override.connections.Load(); n != 0 {
		t.Errorf("expected nothing to be sent to a server that is not verified, found %d connections", n)
	}
}
