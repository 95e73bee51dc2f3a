// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/httpguard"
)

// TestListedProxiesAreUsed expects that a cluster behind a listed proxy is reached, and its certificate verified. A
// proxy that the administrator has not listed receives no connection.
func TestListedProxiesAreUsed(t *testing.T) {
	for name, row := range map[string]struct {
		listed []string
		server string
		want   error
		says   string
	}{
		"listed proxy is used": {listed: []string{"127.0.0.0/8"}, server: "https://example.com:"},
		"listed proxy does not bypass the verification of the server's name": {listed: []string{"127.0.0.1"}, server: "https://another.example:", says: "the server's certificate is for another name"},
		"listed proxy to a metadata service is refused":                      {listed: []string{"127.0.0.1"}, server: "https://169.254.169.254:", want: httpguard.ErrAddressDenied},
		"unlisted proxy is refused":                                          {listed: []string{"10.0.0.0/8", "*.example.com"}, server: "https://example.com:", want: errUnlistedProxy},
		"proxy is refused if no proxies are listed":                          {server: "https://example.com:", want: errUnlistedProxy},
	} {
		t.Run(name, func(t *testing.T) {
			s := startNamedServer(t)
			proxy, tunnels := startTunnel(t, s.Listener.Addr().String())
			listed, err := httpguard.ParseEndpoints(row.listed)
			must(t, err)
			c, err := (Dialer{Proxies: listed}).Dial(kubeconfig(t, row.server+s.port, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo, _ *clientcmdapi.Config) {
				c.ProxyURL, c.CertificateAuthorityData = proxy, encodeCertificate(s.Certificate())
			}), hibernation.ServerOverride{})
			if row.want != nil {
				if !errors.Is(err, row.want) || tunnels.Load() != 0 {
					t.Errorf("expected %v and no tunnel, found %v and %d", row.want, err, tunnels.Load())
				}
				return
			}
			must(t, err)
			defer c.Close()
			err = c.Probe(t.Context())
			if row.says != "" {
				if err == nil || DescribeError(err) != row.says {
					t.Errorf("expected %q, found %v", row.says, err)
				}
				return
			}
			if err != nil || tunnels.Load() == 0 || s.name.Load() != "example.com" {
				t.Errorf("expected the server to be reached through the proxy as example.com, found %v, %d tunnels and the name %v", err, tunnels.Load(), s.name.Load())
			}
		})
	}
}

// startTunnel serves an HTTP proxy that connects every tunnel to one address, and counts the tunnels.
func startTunnel(t *testing.T, address string) (string, *atomic.Int64) {
	t.Helper()
	var tunnels atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "expected CONNECT", http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		server, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, "the server is down", http.StatusBadGateway)
			return
		}
		defer func() { _ = server.Close() }()
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = client.Close() }()
		_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
		ended := make(chan struct{}, 2)
		for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				ended <- struct{}{}
			}()
		}
		<-ended
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL, &tunnels
}
