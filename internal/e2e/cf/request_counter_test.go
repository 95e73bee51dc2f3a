// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// requestCounter stands before the API server and counts what passes, watches and leases left out: watches are opened once, and
// leases are renewed whatever happens.
type requestCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

// serve returns the address, and the authority in PEM that clients have to trust: they send credentials over TLS only.
func (c *requestCounter) serve(t testing.TB, hub *rest.Config) (address string, ca []byte) {
	t.Helper()
	to, err := url.Parse(hub.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(hub))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.countRequest(r)
		proxy.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func (c *requestCounter) countRequest(r *http.Request) {
	if r.URL.Query().Get("watch") != "" || strings.Contains(r.URL.Path, "/leases") {
		return
	}
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	at := len(words) - 1
	for i, word := range words {
		if word == "namespaces" && i+2 < len(words) {
			at = i + 2
		}
	}
	what := words[at]
	if last := words[len(words)-1]; last == "status" {
		what += "/status"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[r.Method+" "+what]++
}

// takeCounts returns what passed since the last time.
func (c *requestCounter) takeCounts() (byKind map[string]int, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byKind, c.counts = maps.Clone(c.counts), nil
	for _, n := range byKind {
		total += n
	}
	return byKind, total
}
