// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// WriteTimeout is a client's time limit for an acknowledgement.
	WriteTimeout = 5 * time.Second
	// writesPerLook is the number of a client's writes for each poll of the primary's label.
	writesPerLook = 2
	// remote is the node of clients that connect to all instances by the network.
	remote = -1
)

func (l *Ledger) followPrimary(ctx context.Context, t testing.TB, c *PodCluster, interval time.Duration) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		label, failed := c.FindPrimaryPod(ctx) // Read the label first: it is set after the promotion, so clients cannot follow it before the promotion is recorded.
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

// rowWriter writes rows with unique keys through the instance that has the label of the primary. A writer on the
// node of an instance can connect to this instance even when the node is disconnected, but then it does not observe
// changes to the label.
type rowWriter struct {
	number, node int
	cluster      *PodCluster
	ledger       *Ledger

	db     *sql.DB
	target string
	saw    int
}

func (c *rowWriter) writeUntil(ctx context.Context, t testing.TB, interval time.Duration) {
	t.Helper()
	tick := time.NewTicker(interval)
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
		a := acknowledgement{id: int64(c.number)<<40 | n, server: server, begin: c.ledger.Elapsed()}
		if err := c.writeRow(ctx, a.id); err != nil {
			if ctx.Err() == nil {
				c.ledger.addRefused()
			}
			c.disconnect()
			continue
		}
		a.end = c.ledger.Elapsed()
		c.ledger.addAck(a)
	}
}

// findPrimary returns the primary that this client can find.
func (c *rowWriter) findPrimary() int {
	if c.node == remote || !c.cluster.Network.IsCut(c.node) {
		c.saw = c.ledger.labelledServer()
	}
	return c.saw
}

func (c *rowWriter) connectTo(t testing.TB, server int) {
	t.Helper()
	address := c.cluster.PodAddresses()[server]
	if server == c.node {
		address = c.cluster.Servers[server].Address
	}
	if c.db != nil && c.target == address {
		return
	}
	c.disconnect()
	c.db, c.target = OpenSession(t, address, AppUser, AppPassword), address
}

func (c *rowWriter) disconnect() {
	if c.db != nil {
		_ = c.db.Close() // The connection is no longer used, so an error has no effect.
		c.db = nil
	}
}

func (c *rowWriter) writeRow(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	_, err := c.db.ExecContext(ctx, "insert into app.rows_of values (?, @@server_uuid)", id)
	return err
}

// CreateRowsTable creates the table of the writers, and its schema, in the primary.
func (c *PodCluster) CreateRowsTable(t testing.TB, primary int) {
	t.Helper()
	c.MustRun(t, primary, "create database app", "create table app.rows_of (id bigint primary key, v varchar(40))")
}

// WriteRow writes one row through the primary, like a client on a node without an instance.
func (c *PodCluster) WriteRow(ctx context.Context, t testing.TB, primary int, id int64) error {
	t.Helper()
	one := &rowWriter{node: remote, cluster: c}
	one.connectTo(t, primary)
	defer one.disconnect()
	return one.writeRow(ctx, id)
}

// StartWriters starts writers that run until ctx ends: as many remote ones as instances, and one on each node. interval
// is the interval of the writes of each. The Pods must be linked.
func StartWriters(ctx context.Context, t testing.TB, c *PodCluster, l *Ledger, interval time.Duration) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() { l.followPrimary(ctx, t, c, writesPerLook*interval) })
	for i := range c.Servers {
		for _, one := range []*rowWriter{{number: 2*i + 1, node: remote}, {number: 2*i + 2, node: i}} {
			one.cluster, one.ledger, one.saw = c, l, -1
			all.Go(func() { one.writeUntil(ctx, t, interval) })
		}
	}
	return all.Wait
}

// lateNews is the maximum delay from a promotion to its observation.
const lateNews = time.Second

// acknowledgement is a row whose commit was acknowledged to a client. Times are relative to the beginning of the
// run.
type acknowledgement struct {
	id         int64
	server     int
	begin, end time.Duration
}

type promotion struct {
	at     time.Duration
	server int
}

// Ledger records the acknowledgements that clients received, and the promotions.
type Ledger struct {
	began time.Time

	mu         sync.Mutex
	acks       []acknowledgement
	promotions []promotion
	refused    int
	label      int
}

// NewLedger returns a ledger that begins now.
func NewLedger() *Ledger { return &Ledger{began: time.Now(), label: -1} }

// Elapsed returns the time since the beginning of the run.
func (l *Ledger) Elapsed() time.Duration { return time.Since(l.began) }

func (l *Ledger) addAck(a acknowledgement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

func (l *Ledger) addRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

func (l *Ledger) notePrimary(primary, label int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.label = label
	if n := len(l.promotions); n == 0 || l.promotions[n-1].server != primary {
		l.promotions = append(l.promotions, promotion{at: l.Elapsed(), server: primary})
	}
}

func (l *Ledger) labelledServer() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.label
}

// dualMoments counts the moments at which two writable primaries acknowledged commits. Such a moment is an
// acknowledgement by a server that is not the primary of the status. The acknowledged statement began after the primary
// of the status had acknowledged its first commit as the primary. The acknowledgement does not count if its server
// becomes the primary within lateNews. All such acknowledgements of one server under the same primary are one moment. A
// moment counts whether or not a row is lost.
func dualMoments(acks []acknowledgement, promotions []promotion) int {
	type moment struct{ reign, server int }
	firstAck := map[int]time.Duration{} // By promotion, the time of the primary's first acknowledgement.
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

// Summary is what a ledger has recorded.
type Summary struct {
	// Acknowledged is the number of acknowledged rows. Refused counts writes that were answered with an error or not at
	// all. These rows may or may not exist.
	Acknowledged, Refused int
	// Promotions counts the changes of the primary in the status.
	Promotions int
	// LastAck is the time of the last acknowledgement since the beginning of the run, and LastServer its instance.
	LastAck    time.Duration
	LastServer int
}

// Summarize returns what the ledger has recorded.
func (l *Ledger) Summarize() Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Summary{Acknowledged: len(l.acks), Refused: l.refused, Promotions: len(l.promotions) - 1}
	if n := len(l.acks); n > 0 {
		s.LastAck, s.LastServer = l.acks[n-1].end, l.acks[n-1].server
	}
	return s
}

// CountDualMoments returns the number of moments at which two primaries acknowledged commits.
func (l *Ledger) CountDualMoments() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return dualMoments(l.acks, l.promotions)
}

// LongestSilence returns the longest time without any acknowledgement.
func (l *Ledger) LongestSilence() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest, last := time.Duration(0), time.Duration(0)
	for _, a := range l.acks {
		longest, last = max(longest, a.end-last), max(last, a.end)
	}
	return longest
}

// shownRows is the number of lost rows that the log names.
const shownRows = 10

// CountLost returns the number of acknowledged rows that an instance does not have, and whether all instances have equal
// rows. It waits until the instances have executed the same transactions.
func (l *Ledger) CountLost(t testing.TB, c *PodCluster) (lost int, areEqual bool) {
	t.Helper()
	waitUntilCaughtUp(t, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	missing, sums := map[int64]bool{}, map[string]bool{}
	for i := range c.Servers {
		held, err := listRows(t, c, i)
		if err != nil {
			t.Errorf("read the rows of instance %d: %v", i, err)
		}
		for _, a := range l.acks {
			if held[a.id] {
				continue
			}
			if missing[a.id] = true; len(missing) <= shownRows {
				t.Logf("row %d, acknowledged by instance %d at %s, is not on instance %d", a.id, a.server, a.end, i)
			}
		}
		sum, err := c.Query(t, i, "select concat(count(*), ' ', bit_xor(crc32(concat(id, v)))) from app.rows_of")
		if err != nil {
			t.Errorf("sum the rows of instance %d: %v", i, err)
		}
		sums[sum] = true
	}
	if len(sums) != 1 {
		t.Errorf("expected equal rows, found the sums %v", sums)
	}
	return len(missing), len(sums) == 1
}

const (
	catchUpTimeout  = 4 * time.Minute
	catchUpInterval = 500 * time.Millisecond
)

// waitUntilCaughtUp waits until all instances have executed the same transactions and have no clients. A healthy
// replica may still lag, and a statement continues after its client has disconnected.
func waitUntilCaughtUp(t testing.TB, c *PodCluster) {
	t.Helper()
	const state = "select concat(@@gtid_executed, ' and clients: ', (select count(*) from performance_schema.processlist where user = '" + AppUser + "'))"
	states := map[string]bool{}
	tick := time.NewTicker(catchUpInterval)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < catchUpTimeout; <-tick.C {
		clear(states)
		idle := 0
		for i := range c.Servers {
			found, err := c.Query(t, i, state)
			states[fmt.Sprint(found, err)] = true
			if err == nil && strings.HasSuffix(found, " 0") {
				idle++
			}
		}
		if len(states) == 1 && idle == len(c.Servers) {
			return
		}
	}
	t.Logf("the instances have not executed the same transactions after %s, or have clients: %v", catchUpTimeout, slices.Collect(maps.Keys(states)))
}

func listRows(t testing.TB, c *PodCluster, i int) (map[int64]bool, error) {
	t.Helper()
	db := OpenSession(t, c.Servers[i].Address, RootUser, RootPassword)
	defer func() { _ = db.Close() }() // An error from Close does not lose rows.
	list, err := db.QueryContext(t.Context(), "select id from app.rows_of")
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	defer func() { _ = list.Close() }() // list.Err returns the error.
	held := map[int64]bool{}
	for list.Next() {
		var id int64
		if err := list.Scan(&id); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		held[id] = true
	}
	return held, list.Err()
}
