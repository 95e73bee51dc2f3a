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

// followPrimary keeps the ledger's primary up to date.
func (l *ackLedger) followPrimary(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster) {
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
			l.notePrimary(cluster.Status.CurrentPrimaryIndex, label)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// rowWriter writes rows with keys of its own through the instance that has the label of the primary. One on the node of an
// instance reaches this instance even when the node is cut off; then it sees no label change either.
type rowWriter struct {
	number, node int
	cluster      *mysqlpods.PodCluster
	ledger       *ackLedger

	db     *sql.DB
	target string
	saw    int
}

func (c *rowWriter) writeUntil(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(writePace)
	defer tick.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.disconnect()
			return
		}
		server := c.findPrimary()
		if server < 0 {
			continue
		}
		c.connectTo(t, server)
		a := acknowledgement{id: int64(c.number)<<40 | n, server: server, begin: c.ledger.elapsed()}
		if err := c.writeRow(ctx, a.id); err != nil {
			if ctx.Err() == nil {
				c.ledger.addRefused()
			}
			c.disconnect()
			continue
		}
		a.end = c.ledger.elapsed()
		c.ledger.addAck(a)
	}
}

// findPrimary finds the primary as far as this client can see.
func (c *rowWriter) findPrimary() int {
	if c.node == remote || !c.cluster.Network.IsCut(c.node) {
		c.saw = c.ledger.labelledServer()
	}
	return c.saw
}

func (c *rowWriter) connectTo(t *testing.T, server int) {
	t.Helper()
	address := c.cluster.PodAddresses()[server]
	if server == c.node {
		address = c.cluster.Servers[server].Address
	}
	if c.db != nil && c.target == address {
		return
	}
	c.disconnect()
	c.db, c.target = openSession(t, address, mysqlpods.AppUser, mysqlpods.AppPassword), address
}

func (c *rowWriter) disconnect() {
	if c.db != nil {
		_ = c.db.Close() // Whatever it says, it is not used any more.
		c.db = nil
	}
}

func (c *rowWriter) writeRow(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	_, err := c.db.ExecContext(ctx, "insert into app.rows_of values (?, @@server_uuid)", id)
	return err
}

// startWriters starts writers that end with ctx: as many remote ones as instances, and one on each node.
func startWriters(ctx context.Context, t *testing.T, c *mysqlpods.PodCluster, l *ackLedger) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { l.followPrimary(ctx, t, c) })
	for i := range c.Servers {
		for _, one := range []*rowWriter{{number: 2*i + 1, node: remote}, {number: 2*i + 2, node: i}} {
			one.cluster, one.ledger, one.saw = c, l, -1
			all.Go(func() { one.writeUntil(ctx, t) })
		}
	}
	return all.Wait
}
