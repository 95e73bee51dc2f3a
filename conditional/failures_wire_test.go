// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"io"
	"net"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

// tcpProxy carries bytes between a manager and the API server, so that the manager speaks TLS and HTTP/2 with the real
// one, and can be torn: then it drops every connection, old and new.
type tcpProxy struct {
	s        *apiServer
	from, to string

	mu      sync.Mutex
	torn    bool
	dropped int
	ends    map[net.Conn]struct{}
}

// newTCPProxy returns one that is whole, for the rest of the test.
func (s *apiServer) newTCPProxy() *tcpProxy {
	s.t.Helper()
	to, err := url.Parse(s.cfg.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
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
		_ = end.Close() // Its other end may have done so.
	}
}

func (w *tcpProxy) reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.torn = false
}

// refusedConnections is how many connections were dropped as soon as they came.
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
			_, _ = io.Copy(way[0], way[1]) // It ends with either end.
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
