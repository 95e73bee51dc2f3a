// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

// Cut is how a node is cut off from all others, in both directions.
type Cut int

// The ways of a cut.
const (
	// Hole lets nothing through and says nothing. What was sent meanwhile arrives when the cut heals.
	Hole Cut = iota + 1
	// Reset ends every connection and each new one.
	Reset
)

// outside is who is no instance.
const outside = -1

// Net is what lies between the Pods and everybody else: a link before each server, with the Pod's address. A connection
// belongs to the instance that it leads to, and to the one whose server has opened it.
type Net struct {
	servers []*mysqld.Server
	links   []*link

	mu    sync.Mutex
	cuts  map[int]Cut
	holes map[int]chan struct{} // Closed when the cut heals.
	pipes map[*pipe]struct{}
}

// link is one Pod's address.
type link struct {
	address   string
	listeners []net.Listener
}

// pipe is one connection through a link.
type pipe struct {
	to, from int
	client   net.Conn
	server   net.Conn
	done     chan struct{}
	once     sync.Once
}

func newNet(t *testing.T, servers []*mysqld.Server) *Net {
	t.Helper()
	n := &Net{servers: servers, cuts: map[int]Cut{}, holes: map[int]chan struct{}{}, pipes: map[*pipe]struct{}{}}
	for i, s := range servers {
		network := s.Address[:strings.LastIndex(s.Address, ".")]
		n.links = append(n.links, &link{address: network + "." + strconv.Itoa(101+i)})
		if err := n.Up(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range servers {
			n.Heal(i)
			n.Down(i)
		}
	})
	return n
}

// Up lets an instance's address be listened on, as it is while a server runs.
func (n *Net) Up(ctx context.Context, i int) error {
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
		go n.serve(context.WithoutCancel(ctx), i, listener, target)
	}
	return nil
}

// Down refuses connections to an instance, whose server is gone. Behind a cut nobody would know.
func (n *Net) Down(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links[i].listeners {
		_ = l.Close() // It is closed whatever it says.
	}
	n.links[i].listeners = nil
	if n.cuts[i] == 0 {
		n.end(i)
	}
}

// Cut cuts an instance off.
func (n *Net) Cut(i int, how Cut) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[i] = how
	switch how {
	case Hole:
		n.holes[i] = make(chan struct{})
	case Reset:
		n.end(i)
	}
}

// Heal takes a cut back.
func (n *Net) Heal(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if hole := n.holes[i]; hole != nil {
		close(hole)
	}
	delete(n.holes, i)
	delete(n.cuts, i)
}

// IsCut says whether an instance is cut off.
func (n *Net) IsCut(i int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[i] != 0
}

// end resets all connections of an instance. It is called with the lock held.
func (n *Net) end(i int) {
	for p := range n.pipes {
		if p.to == i || p.from == i {
			p.end()
		}
	}
}

func (n *Net) serve(ctx context.Context, i int, listener net.Listener, target string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go n.carry(ctx, &pipe{to: i, from: n.opener(conn), client: conn, done: make(chan struct{})}, target)
	}
}

// carry moves bytes until one side ends, and then, unless a cut hides it, ends the other.
func (n *Net) carry(ctx context.Context, p *pipe, target string) {
	defer p.end()
	if !n.register(p) {
		return
	}
	defer n.forget(p)
	n.await(p)
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	if !n.join(p, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { n.move(p, server, p.client) })
	both.Go(func() { n.move(p, p.client, server) })
	both.Wait()
}

// join adds the far side, unless the near one has ended meanwhile.
func (n *Net) join(p *pipe, server net.Conn) bool {
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

func (n *Net) move(p *pipe, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		n.await(p)
		if size > 0 {
			if _, failed := to.Write(buffer[:size]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			n.mu.Lock()
			p.end()
			n.mu.Unlock()
			return
		}
	}
}

// await returns when nothing hides the two ends from each other, or the connection has ended.
func (n *Net) await(p *pipe) {
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

// register says whether a connection may begin.
func (n *Net) register(p *pipe) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts[p.to] == Reset || n.cuts[p.from] == Reset {
		return false
	}
	n.pipes[p] = struct{}{}
	return true
}

func (n *Net) forget(p *pipe) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pipes, p)
}

// end resets both sides.
func (p *pipe) end() {
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
