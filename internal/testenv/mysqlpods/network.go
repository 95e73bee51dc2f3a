// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

// CutMode is how a node is cut off from all others, in both directions.
type CutMode int

// The ways of a cut.
const (
	// DropPackets lets nothing through and ends no connection. What was sent meanwhile arrives when the cut heals.
	DropPackets CutMode = iota + 1
	// ResetConnections ends every connection and each new one.
	ResetConnections
)

// notAnInstance is the opener of a connection that no instance has opened.
const notAnInstance = -1

// PodNetwork lies between the Pods and their clients: a link before each server, with the Pod's address. A connection
// belongs to the instance that it leads to, and to the one whose server has opened it.
type PodNetwork struct {
	servers []*mysqld.Server
	links   []*podLink

	mu          sync.Mutex
	cuts        map[int]CutMode
	holes       map[int]chan struct{} // Closed when the cut heals.
	connections map[*linkConnection]struct{}
}

type podLink struct {
	address   string
	listeners []net.Listener
}

type linkConnection struct {
	to, from int
	client   net.Conn
	server   net.Conn
	done     chan struct{}
	once     sync.Once
}

func newNetwork(t testing.TB, servers []*mysqld.Server) *PodNetwork {
	t.Helper()
	n := &PodNetwork{servers: servers, cuts: map[int]CutMode{}, holes: map[int]chan struct{}{}, connections: map[*linkConnection]struct{}{}}
	for i, s := range servers {
		network := s.Address[:strings.LastIndex(s.Address, ".")]
		n.links = append(n.links, &podLink{address: network + "." + strconv.Itoa(101+i)})
		if err := n.OpenLink(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range servers {
			n.HealCut(i)
			n.CloseLink(i)
		}
	})
	return n
}

// OpenLink lets an instance's address be listened on, as it is while a server runs.
func (n *PodNetwork) OpenLink(ctx context.Context, i int) error {
	var config net.ListenConfig
	for _, port := range []int{mysqld.Port, mysqld.AdminPort} {
		address := net.JoinHostPort(n.links[i].address, strconv.Itoa(port))
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("link instance %d: %w", i, err)
		}
		n.mu.Lock()
		n.links[i].listeners = append(n.links[i].listeners, listener)
		n.mu.Unlock()
		target := net.JoinHostPort(n.servers[i].Address, strconv.Itoa(port))
		go n.serveLink(context.WithoutCancel(ctx), i, listener, target)
	}
	return nil
}

// CloseLink refuses connections to an instance whose server is gone. Behind a cut, clients do not notice.
func (n *PodNetwork) CloseLink(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links[i].listeners {
		_ = l.Close() // It is closed even if it returns an error.
	}
	n.links[i].listeners = nil
	if n.cuts[i] == 0 {
		n.endConnections(i)
	}
}

// CutOff cuts an instance off.
func (n *PodNetwork) CutOff(i int, how CutMode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[i] = how
	switch how {
	case DropPackets:
		n.holes[i] = make(chan struct{})
	case ResetConnections:
		n.endConnections(i)
	}
}

// HealCut takes a cut back.
func (n *PodNetwork) HealCut(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if hole := n.holes[i]; hole != nil {
		close(hole)
	}
	delete(n.holes, i)
	delete(n.cuts, i)
}

// IsCut reports whether an instance is cut off.
func (n *PodNetwork) IsCut(i int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[i] != 0
}

// endConnections resets all connections of an instance. It is called with the lock held.
func (n *PodNetwork) endConnections(i int) {
	for p := range n.connections {
		if p.to == i || p.from == i {
			p.resetBothSides()
		}
	}
}

func (n *PodNetwork) serveLink(ctx context.Context, i int, listener net.Listener, target string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go n.carryConnection(ctx, &linkConnection{to: i, from: n.findOpener(conn), client: conn, done: make(chan struct{})}, target)
	}
}

// carryConnection moves bytes until one side ends, and then, unless a cut hides it, ends the other.
func (n *PodNetwork) carryConnection(ctx context.Context, p *linkConnection, target string) {
	defer p.resetBothSides()
	if !n.registerConnection(p) {
		return
	}
	defer n.forgetConnection(p)
	n.waitWhileCut(p)
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	if !n.joinServer(p, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { n.copyBytes(p, server, p.client) })
	both.Go(func() { n.copyBytes(p, p.client, server) })
	both.Wait()
}

// joinServer adds the far side, unless the near one has ended meanwhile.
func (n *PodNetwork) joinServer(p *linkConnection, server net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-p.done:
		_ = server.Close() // Nobody has used it.
		return false
	default:
		p.server = server
		return true
	}
}

func (n *PodNetwork) copyBytes(p *linkConnection, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		// After the read: what was already on its way when the network was cut arrives only when it heals.
		n.waitWhileCut(p)
		if size > 0 {
			if _, failed := to.Write(buffer[:size]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			n.mu.Lock()
			p.resetBothSides()
			n.mu.Unlock()
			return
		}
	}
}

// waitWhileCut returns when nothing hides the two ends from each other, or the connection has ended.
func (n *PodNetwork) waitWhileCut(p *linkConnection) {
	for {
		n.mu.Lock()
		hole := n.holes[p.to]
		if hole == nil {
			hole = n.holes[p.from]
		}
		n.mu.Unlock()
		if hole == nil {
			return
		}
		select {
		case <-hole:
		case <-p.done:
			return
		}
	}
}

func (n *PodNetwork) registerConnection(p *linkConnection) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts[p.to] == ResetConnections || n.cuts[p.from] == ResetConnections {
		return false
	}
	n.connections[p] = struct{}{}
	return true
}

func (n *PodNetwork) forgetConnection(p *linkConnection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.connections, p)
}

func (p *linkConnection) resetBothSides() {
	p.once.Do(func() {
		close(p.done)
		for _, conn := range []net.Conn{p.client, p.server} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // It is closed in any case.
				_ = tcp.Close()
			}
		}
	})
}

// findOpener is the instance whose server has opened a connection; every loopback connection comes from the same address, so
// that only the kernel's tables show which it is.
func (n *PodNetwork) findOpener(conn net.Conn) int {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || remote.IP.To4() == nil {
		return notAnInstance
	}
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return notAnInstance
	}
	local := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(remote.IP.To4()), remote.Port)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[1] == local {
			return n.findSocketOwner("socket:[" + fields[9] + "]")
		}
	}
	return notAnInstance
}

// findSocketOwner is the instance whose server holds a socket.
func (n *PodNetwork) findSocketOwner(socket string) int {
	for i, s := range n.servers {
		dir := fmt.Sprintf("/proc/%d/fd", s.PID())
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // The server has just ended.
		}
		for _, file := range files {
			if link, err := os.Readlink(dir + "/" + file.Name()); err == nil && link == socket {
				return i
			}
		}
	}
	return notAnInstance
}
