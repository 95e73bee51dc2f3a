// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
)

// killMoment is when in a request the manager is killed.
type killMoment string

const (
	// before kills when the request has left the manager, and lets it reach no server.
	before killMoment = "before"
	// after kills when the request has done its work, and lets the manager not learn of it.
	after killMoment = "after"
)

// killPoint is where the manager is killed.
type killPoint struct {
	request string
	when    killMoment
}

func (p killPoint) String() string { return string(p.when) + " " + p.request }

// managerTraffic is every request of the manager. It remembers them and kills the manager at the armed points.
type managerTraffic struct {
	// killed receives each point at which the manager was killed, once it is dead.
	killed chan killPoint

	mu       sync.Mutex
	requests []managerRequest
	// openRequests counts the requests that are being answered, by name; a watch is answered as long as it lasts.
	openRequests map[string]int
	armed        []killPoint
	kill         func()
}

func newManagerTraffic() *managerTraffic {
	return &managerTraffic{killed: make(chan killPoint, 1), openRequests: map[string]int{}}
}

// armKillPoints sets the points of the transition that follows, in the order in which they are to come, and forgets the
// requests so far.
func (w *managerTraffic) armKillPoints(points ...killPoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.armed = nil, slices.Clone(points)
}

// disarmKillPoints returns the points that were not reached.
func (w *managerTraffic) disarmKillPoints() []killPoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.armed
	w.armed = nil
	return left
}

// setKill sets how to kill the manager whose requests come from now on.
func (w *managerTraffic) setKill(kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kill = kill
}

// listRequests returns the requests since points were armed, in their order.
func (w *managerTraffic) listRequests() []managerRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

func (w *managerTraffic) countRequests(name string) int {
	n := 0
	for _, a := range w.listRequests() {
		if a.name == name {
			n++
		}
	}
	return n
}

// killAt kills the manager if the point is the next one that is armed, and returns whether it did.
func (w *managerTraffic) killAt(p killPoint) bool {
	w.mu.Lock()
	hit := len(w.armed) > 0 && w.armed[0] == p
	if hit {
		w.armed = w.armed[1:]
	}
	kill := w.kill
	w.mu.Unlock()
	if hit {
		kill()
		w.killed <- p
	}
	return hit
}

// recordRequest remembers a request. The function that it returns marks it as answered.
func (w *managerTraffic) recordRequest(a managerRequest) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, a)
	w.openRequests[a.name]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.openRequests[a.name]--
	}
}

// errManagerKilled ends an answer that no process is left to receive.
var errManagerKilled = errors.New("expected the manager to hear the answer, found it killed")

// interceptingProxy stands between the manager and one server.
type interceptingProxy struct {
	// url is what the manager is given in place of the server's.
	url string
	// connections counts how often the manager connected.
	connections atomic.Int64
	// isShut makes the server look like one that is not up yet.
	isShut atomic.Bool
}

// startProxy starts a proxy for the server that cfg describes, with cfg's credentials. A server that does not answer is,
// through the proxy, a connection that breaks.
func (w *managerTraffic) startProxy(t *testing.T, via string, cfg *rest.Config) *interceptingProxy {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tp := &interceptingProxy{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(w.interceptRequests(tp, via, proxy))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			tp.connections.Add(1)
		}
	}
	server.Start()
	tp.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return tp
}

// interceptRequests records each request, and kills the manager before it reaches the server or after the server has answered.
func (w *managerTraffic) interceptRequests(tp *interceptingProxy, via string, proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		a := describeRequest(via, r, body)
		defer w.recordRequest(a)()
		if w.killAt(killPoint{a.name, before}) || tp.isShut.Load() {
			panic(http.ErrAbortHandler)
		}
		own := *proxy
		own.ModifyResponse = func(answer *http.Response) error {
			if answer.StatusCode < http.StatusBadRequest && w.killAt(killPoint{a.name, after}) {
				return errManagerKilled
			}
			return nil
		}
		own.ServeHTTP(out, r)
	})
}
