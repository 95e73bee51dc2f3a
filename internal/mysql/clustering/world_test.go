// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// The toy world: a few servers with their pods, the cluster's status, its clients and its manager, as one comparable
// value. Replication moves in steps, commits await replicas, statements hang, and everything may stop at any moment.
// Times are ages, so that the same situation is the same value whenever it occurs.
type world struct {
	n       int
	servers [most]server
	// primary, stop and errant are the saved status.
	primary int
	stop    toyStop
	errant  [most]bool
	// stopAsked is the annotation.
	stopAsked bool
	// acked are the transactions that clients were told to be safe.
	acked txns
	// rooted are the transactions that somebody committed past all rules.
	rooted txns
	// remembered is the manager's memory.
	remembered toyMemory
}

// most is the size of the largest cluster.
const most = 5

type server struct {
	// The pod.
	exists, terminating, demote bool
	role                        Role
	// alone: its annotation says to leave it alone.
	alone bool

	// up: the server runs. Cut servers are not seen by the manager, or not by the other servers; clients see all.
	up, cutManager, cutPeers bool
	// slow: it does not apply. busy: a client holds a lock that keeps it writable.
	slow, busy bool
	// wiped: its volume was lost once, so that it is somebody else since.
	wiped bool

	readOnly bool
	// executed is committed, waiting is in the binary log and awaits replicas, relay was received from the source.
	executed, waiting, relay, purged txns
	source                           int
	io, sql                          bool
	ioErrno, sqlErrno                int
	semiSource, semiReplica          bool
	waitFor                          int
	clone                            CloneState
	donor                            int
	// pending is a statement of ours that hangs, left how many moments it will.
	pending    toyAct
	left       int
	pendingFor age
}

type toyStop struct {
	reached bool
	since   age
	left    string
}

type toyMemory struct {
	stopAsked, readOnly, gaveUp age
	past                        [most]toyPast
}

type toyPast struct {
	unreachable, ahead, failed age
	misses                     int
	failure, last              string
}

// txns is a set of transactions: some numbers of every identity a server may have.
type txns uint64

// numbers is how many transactions an identity can number; a server has two, before and after its volume is lost.
const numbers = 6

func identity(i int, wiped bool) int {
	if wiped {
		return i + most
	}
	return i
}

func uuid(identity int) string {
	return fmt.Sprintf("%08d-0000-0000-0000-000000000000", identity)
}

func (t txns) has(other txns) bool { return other&^t == 0 }

// sets remembers what was printed and parsed once.
var sets sync.Map

func (t txns) set() gtid.Set {
	if s, ok := sets.Load(t); ok {
		return s.(gtid.Set)
	}
	var parts []string
	for bit := range most * 2 * numbers {
		if t&(1<<bit) != 0 {
			parts = append(parts, fmt.Sprintf("%s:%d", uuid(bit/numbers), bit%numbers+1))
		}
	}
	s, err := gtid.Parse(strings.Join(parts, ","))
	if err != nil {
		panic(err)
	}
	sets.Store(t, s)
	return s
}

// age is how long something goes on; never is zero, and what is older than every bound is forever.
type age time.Duration

const (
	never   age = 0
	forever     = age(time.Minute)
	// moment is the least time between a beginning and the next look.
	moment = 50 * time.Millisecond
)

// worldTime is the toy world's only instant.
func worldTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

func (a age) plus(d time.Duration) age {
	if a == never {
		return never
	}
	return min(a+age(d), forever)
}

// at is when it began: a nanosecond of age means now.
func (a age) at() time.Time {
	if a == never {
		return time.Time{}
	}
	return worldTime().Add(1 - time.Duration(a))
}

func ageOf(t time.Time) age {
	if t.IsZero() {
		return never
	}
	return min(age(worldTime().Sub(t))+1, forever)
}

// fresh is a new cluster: its servers have just started, and none was ever primary.
func fresh(n int) world {
	w := world{n: n, primary: None}
	for i := range n {
		w.servers[i] = server{exists: true, up: true, readOnly: true, source: None}
	}
	return w
}

func (w *world) connected(i, j int) bool {
	a, b := &w.servers[i], &w.servers[j]
	return a.up && b.up && !a.cutPeers && !b.cutPeers
}

func (w *world) reachable(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && !s.cutManager
}

// receives: it is connected to its source.
func (w *world) receives(i int) bool {
	s := &w.servers[i]
	return s.up && s.source != None && s.io && w.connected(i, s.source)
}

// listeners is how many acknowledge what the server writes.
func (w *world) listeners(i int) int {
	n := 0
	for j := range w.n {
		if j != i && w.receives(j) && w.servers[j].source == i && w.servers[j].semiReplica {
			n++
		}
	}
	return n
}

// waits: its commits await replicas.
func (s *server) waits() bool { return s.semiSource && s.waitFor > 0 }

// acknowledges: a client can get something acknowledged by it.
func (w *world) acknowledges(i int) bool {
	s := &w.servers[i]
	return s.up && !s.readOnly && (!s.waits() || w.listeners(i) >= s.waitFor)
}

func (w *world) held(i int) txns {
	s := &w.servers[i]
	return s.executed | s.waiting | s.relay
}

// ready is what the kubelet finds.
func (w *world) ready(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && s.clone != Cloning && (!s.readOnly || w.receives(i) && s.sql && s.sqlErrno == 0)
}

// observe is what the shell would observe: the status, then the replicas, then the primary. Something may happen between.
func (w *world) observe(between func(*world)) Observed {
	o := Observed{Now: worldTime(), Replicas: w.n, StopAsked: w.stopAsked, Primary: w.primary, Instances: make([]Instance, w.n)}
	if w.stop.reached {
		o.Stop = &StopRecord{Since: w.stop.since.at(), Left: w.stop.left}
	}
	for i := range w.n {
		if i != o.Primary {
			o.Instances[i] = w.look(i)
		}
	}
	if between != nil {
		between(w)
	}
	if o.Primary != None {
		o.Instances[o.Primary] = w.look(o.Primary)
	}
	o.Memory = Remember(w.remembered.memory(w.n), o)
	return o
}

func host(i int) string { return fmt.Sprintf("host-%d", i) }

func (w *world) look(i int) Instance {
	s := &w.servers[i]
	seen := Instance{
		Host: host(i), Stopped: s.alone, KnownErrant: w.errant[i],
		Pod: Pod{Exists: s.exists, Ready: w.ready(i), Terminating: s.terminating, Demote: s.demote, Role: s.role},
	}
	if !w.reachable(i) {
		seen.Refused = s.exists && !s.up && !s.cutManager
		return seen
	}
	seen.Reachable, seen.UUID, seen.Family = true, uuid(identity(i, s.wiped)), Family{8, 4}
	seen.Pending, seen.PendingFor = s.pending != toyAct{}, time.Duration(s.pendingFor)
	seen.ReadOnly, seen.SuperReadOnly = s.readOnly, s.readOnly
	seen.Executed, seen.Purged = s.executed.set(), s.purged.set()
	seen.SemiSync = SemiSync{Source: s.semiSource, Replica: s.semiReplica, WaitFor: s.waitFor, Timeout: foreverTimeout}
	if s.waiting != 0 {
		seen.SemiSync.Waiting = 1
	}
	for j := range w.n {
		if j != i && w.receives(j) && w.servers[j].source == i {
			seen.Connected = append(seen.Connected, uuid(identity(j, w.servers[j].wiped)))
		}
	}
	seen.Clone = s.clone
	if s.source != None {
		seen.Channel = w.channel(i)
	}
	return seen
}

func (w *world) channel(i int) Channel {
	s := &w.servers[i]
	c := Channel{Present: true, SourceHost: host(s.source), IOErrno: s.ioErrno, SQLErrno: s.sqlErrno, Retrieved: s.relay.set()}
	switch {
	case w.receives(i):
		c.IO = Running
	case s.io:
		c.IO = Connecting
	}
	if s.sql {
		c.SQL = Running
	}
	if s.slow && !s.executed.has(s.relay) {
		c.Lag = 2 * maxSwitchLag
	}
	return c
}

func (m toyMemory) memory(n int) Memory {
	full := Memory{StopAskedSince: m.stopAsked.at(), ReadOnlySince: m.readOnly.at(), GaveUpAt: m.gaveUp.at()}
	for _, p := range m.past[:n] {
		full.Instances = append(full.Instances, Past{
			UnreachableSince: p.unreachable.at(), Misses: p.misses, AheadSince: p.ahead.at(),
			FailedAt: p.failed.at(), Failure: p.failure, Last: p.last,
		})
	}
	return full
}

func keep(full Memory) toyMemory {
	m := toyMemory{stopAsked: ageOf(full.StopAskedSince), readOnly: ageOf(full.ReadOnlySince), gaveUp: ageOf(full.GaveUpAt)}
	for i, p := range full.Instances {
		m.past[i] = toyPast{
			unreachable: ageOf(p.UnreachableSince), misses: min(p.Misses, missesDown), ahead: ageOf(p.AheadSince),
			failed: ageOf(p.FailedAt), failure: p.Failure, last: p.Last,
		}
	}
	return m
}

// tick lets time pass for everything that has an age.
func (w *world) tick(d time.Duration) {
	m := &w.remembered
	for _, a := range []*age{&m.stopAsked, &m.readOnly, &m.gaveUp, &w.stop.since} {
		*a = a.plus(d)
	}
	for i := range w.n {
		for _, a := range []*age{&m.past[i].unreachable, &m.past[i].ahead, &m.past[i].failed, &w.servers[i].pendingFor} {
			*a = a.plus(d)
		}
	}
}
