// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

const (
	// writePace is a client's, unless it waits.
	writePace = 25 * time.Millisecond
	// writePatience is how long a client waits for an acknowledgement.
	writePatience = 5 * time.Second
	// lookPace is how often the label of the primary is looked for.
	lookPace = 50 * time.Millisecond
	// remote is the node of clients that reach every instance through the net.
	remote = -1
)

// follow keeps the ledger's idea of the primary.
func (l *ledger) follow(ctx context.Context, t *testing.T, c *mysqlpods.Cluster) {
	t.Helper()
	tick := time.NewTicker(lookPace)
	defer tick.Stop()
	for {
		label, failed := c.FindPrimaryPod(ctx) // First: it comes after the promotion, which is then seen before anybody follows it.
		cluster, err := c.GetMySQLCluster(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil || failed != nil:
			t.Errorf("look for the primary: %v, %v", err, failed)
		default:
			l.seen(cluster.Status.CurrentPrimaryIndex, label)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// writer writes rows with keys of its own through the instance that has the label of the primary. One on the node of an
// instance reaches this instance even when the node is cut off; then it sees no label change either.
type writer struct {
	number, node int
	cluster      *mysqlpods.Cluster
	ledger       *ledger

	db     *sql.DB
	target string
	saw    int
}

func (c *writer) run(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(writePace)
	defer tick.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.leave()
			return
		}
		server := c.look()
		if server < 0 {
			continue
		}
		c.connect(t, server)
		a := ack{id: int64(c.number)<<40 | n, server: server, begin: c.ledger.now()}
		if err := c.write(ctx, a.id); err != nil {
			if ctx.Err() == nil {
				c.ledger.failed()
			}
			c.leave()
			continue
		}
		a.end = c.ledger.now()
		c.ledger.acknowledged(a)
	}
}

// look finds the primary as far as this client can see.
func (c *writer) look() int {
	if c.node == remote || !c.cluster.Network.IsCut(c.node) {
		c.saw = c.ledger.labelled()
	}
	return c.saw
}

func (c *writer) connect(t *testing.T, server int) {
	t.Helper()
	address := c.cluster.PodAddresses()[server]
	if server == c.node {
		address = c.cluster.Servers[server].Address
	}
	if c.db != nil && c.target == address {
		return
	}
	c.leave()
	c.db, c.target = open(t, address, mysqlpods.AppUser, mysqlpods.AppPassword), address
}

func (c *writer) leave() {
	if c.db != nil {
		_ = c.db.Close() // Whatever it says, it is not used any more.
		c.db = nil
	}
}

func (c *writer) write(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	_, err := c.db.ExecContext(ctx, "insert into app.rows_of values (?, @@server_uuid)", id)
	return err
}

// startClients starts writers that end with ctx: as many remote ones as instances, and one on each node.
func startClients(ctx context.Context, t *testing.T, c *mysqlpods.Cluster, l *ledger) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { l.follow(ctx, t, c) })
	for i := range c.Servers {
		for _, one := range []*writer{{number: 2*i + 1, node: remote}, {number: 2*i + 2, node: i}} {
			one.cluster, one.ledger, one.saw = c, l, -1
			all.Go(func() { one.run(ctx, t) })
		}
	}
	return all.Wait
}
