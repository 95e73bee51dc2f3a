// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	procDomainCreate   = 9
	procDomainShutdown = 33
	headBytes          = 28
)

// witness is a proxy between torpor and libvirtd that records the times of calls.
type witness struct {
	// socket is the path that torpor connects to.
	socket string

	mu     sync.Mutex
	orders []order
}

type order struct {
	procedure uint32
	at        time.Time
}

func startWitness(t *testing.T, daemon string) *witness {
	t.Helper()
	w := &witness{socket: filepath.Join(filepath.Dir(daemon), "witness")}
	listener, err := net.Listen("unix", w.socket)
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // The test has ended.
			}
			go w.relay(from, daemon)
		}
	}()
	return w
}

func (w *witness) relay(from net.Conn, daemon string) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("unix", daemon)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}()
	for {
		var head [headBytes]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return
		}
		w.note(binary.BigEndian.Uint32(head[12:]))
		if _, err := to.Write(head[:]); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, int64(binary.BigEndian.Uint32(head[:]))-headBytes); err != nil {
			return
		}
	}
}

func (w *witness) note(procedure uint32) {
	if procedure != procDomainCreate && procedure != procDomainShutdown {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders = append(w.orders, order{procedure, time.Now()})
}

// firstAfter returns the time of the first call of a procedure after the given time; zero if there was none.
func (w *witness) firstAfter(procedure uint32, moment time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.orders {
		if o.procedure == procedure && o.at.After(moment) {
			return o.at
		}
	}
	return time.Time{}
}
