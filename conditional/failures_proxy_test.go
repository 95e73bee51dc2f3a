// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// faultyProxy is a proxy between one manager and the API server. It counts the manager's requests. It can respond
// instead of the server, and can delay or break the server's streams.
type faultyProxy struct {
	server *httptest.Server
	next   http.RoundTripper

	mu    sync.Mutex
	asked []*http.Request
	fault requestFault
	held  func(*http.Request) bool
	freed chan struct{} // closed when responses are no longer held back
	open  map[*proxiedStream]struct{}
}

// requestFault responds to a request instead of next.
type requestFault func(r *http.Request, next http.RoundTripper) (*http.Response, error)

// requestMatch selects requests.
type requestMatch = func(*http.Request) bool

// newProxy returns a proxy that uses the given credentials. It runs until the test ends.
func (s *apiServer) newProxy(as *rest.Config) *faultyProxy {
	s.t.Helper()
	next, err := rest.TransportFor(as)
	testenv.Must(s.t, err)
	to, err := url.Parse(as.Host)
	testenv.Must(s.t, err)
	p := &faultyProxy{next: next, open: map[*proxiedStream]struct{}{}, freed: make(chan struct{})}
	close(p.freed)
	p.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     p,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	})
	s.t.Cleanup(func() {
		p.releaseStreams()
		p.cutStreams(anyRequest)
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// config returns a configuration for connecting to the proxy.
func (p *faultyProxy) config() *rest.Config { return &rest.Config{Host: p.server.URL, QPS: -1} }

// RoundTrip records the request and responds to it.
func (p *faultyProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	r = r.WithContext(ctx)
	p.mu.Lock()
	p.asked = append(p.asked, r)
	answer := p.fault
	p.mu.Unlock()
	if answer == nil {
		answer = answerNormally
	}
	response, err := answer(r, p.next)
	if err != nil {
		cancel()
		return nil, err
	}
	body := &proxiedStream{ReadCloser: response.Body, of: r, by: p, cancel: cancel}
	p.mu.Lock()
	p.open[body] = struct{}{}
	p.mu.Unlock()
	response.Body = body
	return response, nil
}

// setFault applies a fault to every request until clearFault is called.
func (p *faultyProxy) setFault(f requestFault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

func (p *faultyProxy) clearFault() { p.setFault(nil) }

// countRequests returns the number of matching requests.
func (p *faultyProxy) countRequests(of requestMatch) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.asked {
		if of(r) {
			n++
		}
	}
	return n
}

// countStreams returns the number of matching responses that are still open.
func (p *faultyProxy) countStreams(of requestMatch) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for body := range p.open {
		if of(body.of) {
			n++
		}
	}
	return n
}

// holdStreams holds back matching responses until releaseStreams is called.
func (p *faultyProxy) holdStreams(of requestMatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.freed = of, make(chan struct{})
}

func (p *faultyProxy) releaseStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held = nil
		close(p.freed)
	}
}

// cutStreams breaks matching responses.
func (p *faultyProxy) cutStreams(of requestMatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for body := range p.open {
		if of(body.of) {
			body.cancel()
		}
	}
}

// proxiedStream is the body of a response.
type proxiedStream struct {
	io.ReadCloser
	of     *http.Request
	by     *faultyProxy
	cancel context.CancelFunc
}

func (s *proxiedStream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	s.by.mu.Lock()
	freed := s.by.freed
	held := s.by.held != nil && s.by.held(s.of)
	s.by.mu.Unlock()
	if held {
		select {
		case <-freed:
		case <-s.of.Context().Done():
		}
	}
	return n, err
}

// Close closes the response.
func (s *proxiedStream) Close() error {
	s.by.mu.Lock()
	delete(s.by.open, s)
	s.by.mu.Unlock()
	s.cancel()
	return s.ReadCloser.Close()
}

func answerNormally(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	return next.RoundTrip(r)
}

// onRequests applies a fault to matching requests only.
func onRequests(some requestMatch, f requestFault) requestFault {
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if some(r) {
			return f(r, next)
		}
		return next.RoundTrip(r)
	}
}

// inTurn applies one fault to each request, in rotation.
func inTurn(faults ...requestFault) requestFault {
	var mu sync.Mutex
	n := 0
	return func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		mu.Lock()
		f := faults[n%len(faults)]
		n++
		mu.Unlock()
		return f(r, next)
	}
}

// answerStatus responds with an error status as the API server does.
func answerStatus(code int, reason metav1.StatusReason) requestFault {
	return func(r *http.Request, _ http.RoundTripper) (*http.Response, error) {
		status := k8serrors.NewGenericServerResponse(code, r.Method, schema.GroupResource{}, "", string(reason), 0, true).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		status.Reason = reason
		raw, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(raw)),
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(bytes.NewReader(raw)),
		}, nil
	}
}

// asStranger sends the request to the real server with an unknown token.
func asStranger(cfg *rest.Config) (requestFault, error) {
	stranger := rest.AnonymousClientConfig(cfg)
	stranger.BearerToken = "expired"
	transport, err := rest.TransportFor(stranger)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request, _ http.RoundTripper) (*http.Response, error) { return transport.RoundTrip(r) }, nil
}

func anyRequest(*http.Request) bool { return true }

// isCRDRequest matches the lists and watches of CRDs.
func isCRDRequest(r *http.Request) bool {
	return r.URL.Path == "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
}

// isDiscovery matches the request for the kinds of a group version.
func isDiscovery(gv schema.GroupVersion) requestMatch {
	return func(r *http.Request) bool { return r.URL.Path == "/apis/"+gv.String() }
}

// isObjectRequest matches the requests for the objects of a kind.
func isObjectRequest(gv schema.GroupVersion, plural string) requestMatch {
	return func(r *http.Request) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, "/apis/"+gv.String()+"/")
		return ok && (strings.HasPrefix(rest, plural) || strings.Contains(rest, "/"+plural))
	}
}

// isWatch matches the watches among the requests that of matches.
func isWatch(of requestMatch) requestMatch {
	return func(r *http.Request) bool {
		v := r.URL.Query().Get("watch")
		return of(r) && (v == "true" || v == "1")
	}
}

// tcpProxy forwards bytes between a manager and the API server, so the manager uses TLS and HTTP/2 with the real
// server. While it is torn, it drops all existing and new connections.
type tcpProxy struct {
	s        *apiServer
	from, to string

	mu      sync.Mutex
	torn    bool
	dropped int
	ends    map[net.Conn]struct{}
}

// newTCPProxy returns a working proxy. It runs until the test ends.
func (s *apiServer) newTCPProxy() *tcpProxy {
	s.t.Helper()
	to, err := url.Parse(s.cfg.Host)
	testenv.Must(s.t, err)
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	testenv.Must(s.t, err)
	w := &tcpProxy{s: s, from: listener.Addr().String(), to: to.Host, ends: map[net.Conn]struct{}{}}
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			busy.Go(func() { w.forward(near) })
		}
	})
	s.t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			s.t.Error(err)
		}
		w.disconnect()
		busy.Wait()
	})
	return w
}

func (w *tcpProxy) config() *rest.Config {
	cfg := rest.CopyConfig(w.s.cfg)
	cfg.Host = "https://" + w.from
	return cfg
}

func (w *tcpProxy) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.torn = true
	for end := range w.ends {
		_ = end.Close() // The peer may have closed the connection.
	}
}

func (w *tcpProxy) reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.torn = false
}

// refusedConnections returns the number of connections that were dropped as soon as they were accepted.
func (w *tcpProxy) refusedConnections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

func (w *tcpProxy) forward(near net.Conn) {
	defer func() { _ = near.Close() }()
	far, err := (&net.Dialer{}).Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	if !w.admitConnection(near, far) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // The copy ends when either side is closed.
			_ = near.Close()
			_ = far.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, near)
	delete(w.ends, far)
}

func (w *tcpProxy) admitConnection(near, far net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.torn {
		w.dropped++
		return false
	}
	w.ends[near], w.ends[far] = struct{}{}, struct{}{}
	return true
}
