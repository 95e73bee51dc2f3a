// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

// haltTimeout is far above what it takes to move some megabytes.
const haltTimeout = time.Minute

// haltingProxy is a TCP proxy of a server's port for administrators. The first connection that has carried so many bytes in
// one direction halts for as long as the proxy is there, so that its client is certainly in the middle of something.
type haltingProxy struct {
	// Address is the way to the server.
	Address string

	listener net.Listener
	server   string
	halted   chan struct{}
	halt     sync.Once

	mu    sync.Mutex
	conns []net.Conn
}

// direction is that in which bytes are counted.
type direction bool

const (
	toClient direction = false
	toServer direction = true
)

func newHaltingProxy(t *testing.T, s *mysqld.Server, way direction, most int64) *haltingProxy {
	t.Helper()
	at := strings.LastIndex(s.Address, ".")
	l := &haltingProxy{Address: s.Address[:at] + ".200", server: net.JoinHostPort(s.Address, strconv.Itoa(mysqld.AdminPort)), halted: make(chan struct{})}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(l.Address, strconv.Itoa(mysqld.AdminPort)))
	if err != nil {
		t.Fatal(err)
	}
	l.listener = listener
	t.Cleanup(l.closeAll)
	go l.serve(t, way, most)
	return l
}

func (l *haltingProxy) serve(t *testing.T, way direction, most int64) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(t.Context(), "tcp", l.server)
		if err != nil {
			_ = client.Close() // The client sees that it is closed.
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		l.mu.Unlock()
		limited, free := server, client
		if way == toServer {
			limited, free = client, server
		}
		go func() {
			if n, _ := io.CopyN(free, limited, most); n == most {
				l.halt.Do(func() { close(l.halted) })
				return
			}
			_, _ = client.Close(), server.Close() // One side has ended.
		}()
		go func() {
			_, _ = io.Copy(limited, free)
			_, _ = client.Close(), server.Close() // One side has ended.
		}()
	}
}

// waitUntilHalted waits until a connection has halted.
func (l *haltingProxy) waitUntilHalted(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(haltTimeout)
	defer timer.Stop()
	select {
	case <-l.halted:
	case <-timer.C:
		t.Fatalf("nothing large went through the proxy within %s", haltTimeout)
	}
}

// closeAll ends the proxy and all its connections.
func (l *haltingProxy) closeAll() {
	_ = l.listener.Close() // It is closed even if this fails.
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // It is closed even if this fails.
	}
}
