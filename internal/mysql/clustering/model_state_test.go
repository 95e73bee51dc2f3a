// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// modelState is a cluster in small: a few servers with their pods, the cluster's status, its clients and its manager, as one
// comparable value. Replication moves in steps, commits await replicas, statements hang, and everything may stop at any moment.
// Times are ages, so that the same situation is the same value whenever it occurs.
type modelState struct {
	n       int
	servers [maxInstances]modelServer
	// primary, stop and errant are the saved status.
	primary int
	stop    modelStop
	errant  [maxInstances]bool
	// stopAsked is the annotation.
	stopAsked bool
	// acked are the transactions that were acknowledged to clients.
	acked transactions
	// rooted are the transactions that were committed past all rules.
	rooted transactions
	// history is the manager's memory.
	history modelHistory
}

// maxInstances is the size of the largest cluster.
const maxInstances = 5

type modelServer struct {
	// The pod.
	exists, terminating, demote bool
	role                        PodRole
	// alone says that its annotation asks to leave it alone.
	alone bool

	// up says that the server runs. Cut servers are not seen by the manager, or not by the other servers; clients see all.
	up, cutManager, cutPeers bool
	// slow says that it does not apply, busy that a client holds a lock which keeps it writable.
	slow, busy bool
	// wiped says that its volume was lost once, so that it has another identity since.
	wiped bool

	readOnly bool
	// executed is committed, waiting is in the binary log and awaits replicas, relay was received from the source.
	executed, waiting, relay, purged transactions
	source                           int
	io, sql                          bool
	ioErrno, sqlErrno                int
	semiSource, semiReplica          bool
	waitFor                          int
	clone                            CloneState
	donor                            int
	// pending is a statement of ours that hangs, left how many moments it will.
	pending    serverAction
	left       int
	pendingFor age
}

type modelStop struct {
	reached bool
	since   age
	left    string
}

type modelHistory struct {
	stopAsked, readOnly, gaveUp age
	past                        [maxInstances]modelInstanceHistory
}

type modelInstanceHistory struct {
	unreachable, ahead, failed age
	misses                     int
	failure, last              string
}

// transactions is a set of transactions: some numbers of every identity a server may have.
type transactions uint64

// transactionsPerServer is how many transactions an identity can number; a server has two, before and after its volume is lost.
const transactionsPerServer = 6

func identity(i int, wiped bool) int {
	if wiped {
		return i + maxInstances
	}
	return i
}

func uuid(identity int) string {
	return fmt.Sprintf("%08d-0000-0000-0000-000000000000", identity)
}

func (t transactions) contains(other transactions) bool { return other&^t == 0 }

// parsedSets remembers what was printed and parsed once.
var parsedSets sync.Map

func (t transactions) toSet() gtid.Set {
	if s, ok := parsedSets.Load(t); ok {
		return s.(gtid.Set)
	}
	var parts []string
	for bit := range maxInstances * 2 * transactionsPerServer {
		if t&(1<<bit) != 0 {
			parts = append(parts, fmt.Sprintf("%s:%d", uuid(bit/transactionsPerServer), bit%transactionsPerServer+1))
		}
	}
	s, err := gtid.Parse(strings.Join(parts, ","))
	if err != nil {
		panic(err)
	}
	parsedSets.Store(t, s)
	return s
}

// age is how long something goes on; never is zero, and what is older than every bound is forever.
type age time.Duration

const (
	never   age = 0
	forever     = age(time.Minute)
	// shortestInterval is the least time between a beginning and the next look.
	shortestInterval = 50 * time.Millisecond
)

// modelTime is the model's only instant.
func modelTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

func (a age) plus(d time.Duration) age {
	if a == never {
		return never
	}
	return min(a+age(d), forever)
}

// startTime is when it began: a nanosecond of age means now.
func (a age) startTime() time.Time {
	if a == never {
		return time.Time{}
	}
	return modelTime().Add(1 - time.Duration(a))
}

func ageOf(t time.Time) age {
	if t.IsZero() {
		return never
	}
	return min(age(modelTime().Sub(t))+1, forever)
}

// newModelState is a new cluster: its servers have just started, and none was ever primary.
func newModelState(n int) modelState {
	w := modelState{n: n, primary: NoInstance}
	for i := range n {
		w.servers[i] = modelServer{exists: true, up: true, readOnly: true, source: NoInstance}
	}
	return w
}

func (w *modelState) connected(i, j int) bool {
	a, b := &w.servers[i], &w.servers[j]
	return a.up && b.up && !a.cutPeers && !b.cutPeers
}

func (w *modelState) reachable(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && !s.cutManager
}

// receivesFromSource reports whether a server is connected to its source.
func (w *modelState) receivesFromSource(i int) bool {
	s := &w.servers[i]
	return s.up && s.source != NoInstance && s.io && w.connected(i, s.source)
}

// countAcknowledgers is how many acknowledge what the server writes.
func (w *modelState) countAcknowledgers(i int) int {
	n := 0
	for j := range w.n {
		if j != i && w.receivesFromSource(j) && w.servers[j].source == i && w.servers[j].semiReplica {
			n++
		}
	}
	return n
}

// awaitsReplicas reports whether commits of the server await replicas.
func (s *modelServer) awaitsReplicas() bool { return s.semiSource && s.waitFor > 0 }

// canAcknowledge reports whether a client can get something acknowledged by a server.
func (w *modelState) canAcknowledge(i int) bool {
	s := &w.servers[i]
	return s.up && !s.readOnly && (!s.awaitsReplicas() || w.countAcknowledgers(i) >= s.waitFor)
}

func (w *modelState) heldTransactions(i int) transactions {
	s := &w.servers[i]
	return s.executed | s.waiting | s.relay
}

// isPodReady is what the kubelet finds.
func (w *modelState) isPodReady(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && s.clone != Cloning && (!s.readOnly || w.receivesFromSource(i) && s.sql && s.sqlErrno == 0)
}

// observe is what the shell would observe: the status, then the replicas, then the primary. Something may happen between.
func (w *modelState) observe(between func(*modelState)) Observed {
	o := Observed{Now: modelTime(), Replicas: w.n, StopAsked: w.stopAsked, Primary: w.primary, Instances: make([]Instance, w.n)}
	if w.stop.reached {
		o.Stop = &StopRecord{Since: w.stop.since.startTime(), Unfinished: w.stop.left}
	}
	for i := range w.n {
		if i != o.Primary {
			o.Instances[i] = w.observeInstance(i)
		}
	}
	if between != nil {
		between(w)
	}
	if o.Primary != NoInstance {
		o.Instances[o.Primary] = w.observeInstance(o.Primary)
	}
	o.History = UpdateHistory(w.history.toHistory(w.n), o)
	return o
}

func host(i int) string { return fmt.Sprintf("host-%d", i) }

func (w *modelState) observeInstance(i int) Instance {
	s := &w.servers[i]
	seen := Instance{
		Host: host(i), Stopped: s.alone, KnownErrant: w.errant[i],
		Pod: PodFacts{Exists: s.exists, Ready: w.isPodReady(i), Terminating: s.terminating, Demote: s.demote, Role: s.role},
	}
	if !w.reachable(i) {
		seen.Refused = s.exists && !s.up && !s.cutManager
		return seen
	}
	seen.Reachable, seen.UUID, seen.Series = true, uuid(identity(i, s.wiped)), ReleaseSeries{8, 4}
	seen.Pending, seen.PendingFor = s.pending != serverAction{}, time.Duration(s.pendingFor)
	seen.ReadOnly, seen.SuperReadOnly = s.readOnly, s.readOnly
	seen.Executed, seen.Purged = s.executed.toSet(), s.purged.toSet()
	seen.SemiSync = SemiSync{Source: s.semiSource, Replica: s.semiReplica, WaitFor: s.waitFor, Timeout: endlessTimeout}
	if s.waiting != 0 {
		seen.SemiSync.Waiting = 1
	}
	for j := range w.n {
		if j != i && w.receivesFromSource(j) && w.servers[j].source == i {
			seen.Connected = append(seen.Connected, uuid(identity(j, w.servers[j].wiped)))
		}
	}
	seen.Clone = s.clone
	if s.source != NoInstance {
		seen.Channel = w.observeChannel(i)
	}
	return seen
}

func (w *modelState) observeChannel(i int) ReplicationChannel {
	s := &w.servers[i]
	c := ReplicationChannel{Present: true, SourceHost: host(s.source), IOErrno: s.ioErrno, SQLErrno: s.sqlErrno, Retrieved: s.relay.toSet()}
	switch {
	case w.receivesFromSource(i):
		c.IO = Running
	case s.io:
		c.IO = Connecting
	}
	if s.sql {
		c.SQL = Running
	}
	if s.slow && !s.executed.contains(s.relay) {
		c.Lag = 2 * maxSwitchoverLag
	}
	return c
}

func (m modelHistory) toHistory(n int) History {
	full := History{StopAskedSince: m.stopAsked.startTime(), ReadOnlySince: m.readOnly.startTime(), GaveUpAt: m.gaveUp.startTime()}
	for _, p := range m.past[:n] {
		full.Instances = append(full.Instances, InstanceHistory{
			UnreachableSince: p.unreachable.startTime(), Misses: p.misses, AheadSince: p.ahead.startTime(),
			FailedAt: p.failed.startTime(), Failure: p.failure, LastAction: p.last,
		})
	}
	return full
}

func fromHistory(full History) modelHistory {
	m := modelHistory{stopAsked: ageOf(full.StopAskedSince), readOnly: ageOf(full.ReadOnlySince), gaveUp: ageOf(full.GaveUpAt)}
	for i, p := range full.Instances {
		m.past[i] = modelInstanceHistory{
			unreachable: ageOf(p.UnreachableSince), misses: min(p.Misses, primaryDownMisses), ahead: ageOf(p.AheadSince),
			failed: ageOf(p.FailedAt), failure: p.Failure, last: p.LastAction,
		}
	}
	return m
}

// passTime lets time pass for everything that has an age.
func (w *modelState) passTime(d time.Duration) {
	m := &w.history
	for _, a := range []*age{&m.stopAsked, &m.readOnly, &m.gaveUp, &w.stop.since} {
		*a = a.plus(d)
	}
	for i := range w.n {
		for _, a := range []*age{&m.past[i].unreachable, &m.past[i].ahead, &m.past[i].failed, &w.servers[i].pendingFor} {
			*a = a.plus(d)
		}
	}
}
