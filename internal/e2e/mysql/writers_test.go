// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
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

// lateNews is how much later than it happened a promotion may be seen.
const lateNews = time.Second

// acknowledgement is a row whose commit was acknowledged to a client. Times are since the beginning of the run.
type acknowledgement struct {
	id         int64
	server     int
	begin, end time.Duration
}

type promotion struct {
	at     time.Duration
	server int
}

// ackLedger is what clients were promised, and who was the primary.
type ackLedger struct {
	began time.Time

	mu         sync.Mutex
	acks       []acknowledgement
	promotions []promotion
	refused    int
	label      int
}

func newLedger() *ackLedger { return &ackLedger{began: time.Now(), label: -1} }

func (l *ackLedger) elapsed() time.Duration { return time.Since(l.began) }

func (l *ackLedger) addAck(a acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

func (l *ackLedger) addRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

func (l *ackLedger) notePrimary(primary, label int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.label = label
	if n := len(l.promotions); n == 0 || l.promotions[n-1].server != primary {
		l.promotions = append(l.promotions, promotion{at: l.elapsed(), server: primary})
	}
}

func (l *ackLedger) labelledServer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.label
}

// dualMoments counts the moments at which two writable primaries both acknowledged. Such a moment is an acknowledgement
// by a server that is not the primary of the status, for a statement that began after the primary of the status had
// acknowledged one of its own reign. It is none if that server is seen to become the primary within lateNews. All such
// acknowledgements of one server in one reign are one moment. It counts whether or not a row is lost by it.
func dualMoments(acks []acknowledgement, promotions []promotion) int {
	type moment struct{ reign, server int }
	firstAck := map[int]time.Duration{} // By reign: when its primary had acknowledged for the first time.
	reigns := make([]int, len(acks))
	for i, a := range acks {
		r, _ := slices.BinarySearchFunc(promotions, a.begin, func(p promotion, at time.Duration) int { return cmp.Or(cmp.Compare(p.at, at), -1) })
		reigns[i] = r - 1
		if r == 0 || promotions[r-1].server != a.server {
			continue
		}
		if first, found := firstAck[r-1]; !found || a.end < first {
			firstAck[r-1] = a.end
		}
	}
	moments := map[moment]bool{}
	for i, a := range acks {
		r := reigns[i]
		if r < 0 || promotions[r].server == a.server {
			continue
		}
		first, served := firstAck[r]
		soon := slices.ContainsFunc(promotions[r+1:], func(p promotion) bool { return p.server == a.server && p.at <= a.end+lateNews })
		if served && a.begin > first && !soon {
			moments[moment{r, a.server}] = true
		}
	}
	return len(moments)
}

func TestDualMoments(t *testing.T) {
	reigns := []promotion{{0, 0}, {10 * time.Second, 1}, {20 * time.Second, 0}}
	at := func(server int, begin time.Duration) acknowledgement {
		return acknowledgement{server: server, begin: begin, end: begin + 10*time.Millisecond}
	}
	second := time.Second
	for name, c := range map[string]struct {
		acks []acknowledgement
		want int
	}{
		"two primaries one after the other are no moment": {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 21*second)}, 0},
		"the old one before the new one serves":           {[]acknowledgement{at(0, second), at(0, 11*second), at(1, 12*second)}, 0},
		"the old one after the new one has served":        {[]acknowledgement{at(0, second), at(1, 11*second), at(0, 12*second), at(1, 13*second)}, 1},
		"many rows of one reign are one moment":           {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 13*second)}, 1},
		"a third server is another moment":                {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(2, 13*second)}, 2},
		"a promotion that is seen late is no moment":      {[]acknowledgement{at(0, 9*second), at(1, 9500*time.Millisecond)}, 0},
		"two statements under way at the same time":       {[]acknowledgement{{server: 0, begin: 10500 * time.Millisecond, end: 12 * second}, at(1, 11*second)}, 0},
		"no server has acknowledged anything":             {nil, 0},
		"the old one in a later reign, again and again":   {[]acknowledgement{at(1, 11*second), at(0, 12*second), at(0, 21*second), at(1, 22*second)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := dualMoments(c.acks, reigns); got != c.want {
				t.Errorf("expected %d moments, found %d", c.want, got)
			}
		})
	}
}
