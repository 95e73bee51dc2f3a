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

// moment is when in an act the manager is killed.
type moment string

const (
	// before: the request has left the manager and reaches nobody.
	before moment = "before"
	// after: the request has done its work and the manager does not learn of it.
	after moment = "after"
)

// point is where the manager is killed.
type point struct {
	act  string
	when moment
}

func (p point) String() string { return string(p.when) + " " + p.act }

// wire is everything that the manager says to the outside. It remembers the acts and kills at the armed points.
type wire struct {
	// struck tells of each point at which the manager was killed, when it is dead.
	struck chan point

	mu   sync.Mutex
	seen []act
	// open counts the requests that are being answered, by act; a watch is one as long as it lasts.
	open  map[string]int
	armed []point
	kill  func()
}

func newWire() *wire { return &wire{struck: make(chan point, 1), open: map[string]int{}} }

// arm sets the points of the story that follows, in the order in which they are to come, and forgets what was seen.
func (w *wire) arm(points ...point) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.armed = nil, slices.Clone(points)
}

// disarm returns the points that were not met.
func (w *wire) disarm() []point {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.armed
	w.armed = nil
	return left
}

// onKill says how to kill the manager that speaks from now on.
func (w *wire) onKill(kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kill = kill
}

// acts are the acts since the last arm, in their order.
func (w *wire) acts() []act {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *wire) count(name string) int {
	n := 0
	for _, a := range w.acts() {
		if a.name == name {
			n++
		}
	}
	return n
}

// meet kills the manager if the point is the next one that is armed, and tells whether it did.
func (w *wire) meet(p point) bool {
	w.mu.Lock()
	hit := len(w.armed) > 0 && w.armed[0] == p
	if hit {
		w.armed = w.armed[1:]
	}
	kill := w.kill
	w.mu.Unlock()
	if hit {
		kill()
		w.struck <- p
	}
	return hit
}

// note remembers an act; the function it returns says that it has been answered.
func (w *wire) note(a act) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, a)
	w.open[a.name]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open[a.name]--
	}
}

// errUnheard: there is nobody left to hear the answer.
var errUnheard = errors.New("expected the manager to hear the answer, found it killed")

// tap is the wire to one server.
type tap struct {
	// url is what the manager is told instead of the server.
	url string
	// connections is how often somebody connected.
	connections atomic.Int64
	// shut makes the server look like one that does not answer yet.
	shut atomic.Bool
}

// newTap stands in front of the server that cfg describes and brings along cfg's credentials.
// A server that does not answer is, through the tap, a connection that breaks.
func (w *wire) newTap(t *testing.T, via string, cfg *rest.Config) *tap {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tp := &tap{}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(w.between(tp, via, proxy))
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

// between notes each act and strikes before it reaches the server and after the server has answered.
func (w *wire) between(tp *tap, via string, proxy *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := readBody(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		a := actOf(via, r, body)
		defer w.note(a)()
		if w.meet(point{a.name, before}) || tp.shut.Load() {
			panic(http.ErrAbortHandler)
		}
		own := *proxy
		own.ModifyResponse = func(answer *http.Response) error {
			if answer.StatusCode < http.StatusBadRequest && w.meet(point{a.name, after}) {
				return errUnheard
			}
			return nil
		}
		own.ServeHTTP(out, r)
	})
}
