// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// modelState models a small cluster as one comparable value: servers with their Pods, the cluster's status, clients,
// and the manager. Replication advances in steps, commits wait for replicas, statements hang, and every part may fail
// at any moment. Times are stored as ages, so equal situations have equal values at any time.
type modelState struct {
	n       int
	servers [maxInstances]modelServer
	// primary, guaranteed, stop and errant are the saved status. guaranteed is unknownAcks until a number is recorded.
	primary    int
	guaranteed int
	stop       modelStop
	errant     [maxInstances]bool
	// discarded are the transactions that the status lists as lost.
	discarded [maxInstances]transactions
	// reclonesErrant is the annotation for re-clones of errant instances.
	reclonesErrant bool
	// stopAsked and forced are the annotations for a stop and a forced start.
	stopAsked, forced bool
	// acked are the transactions that were acknowledged to clients.
	acked transactions
	// rooted are the transactions of commitDirectly.
	rooted transactions
	// history is kept in the manager's memory.
	history modelHistory
}

// maxInstances is the size of the largest modeled cluster.
const maxInstances = 5

type modelServer struct {
	// Fields of the Pod.
	exists, terminating, demote, reclone bool
	role                                 PodRole
	// alone means that an annotation excludes the instance from clustering.
	alone bool

	// up means that the server runs. cutManager and cutPeers mean that the manager or the other servers cannot reach
	// it. Clients can always reach the server.
	up, cutManager, cutPeers bool
	// refuses means that connections from the manager are refused while the manager is cut off from the server.
	refuses bool
	// slow means that the server does not apply transactions. busy means that a client holds a lock that keeps the
	// server writable.
	slow, busy bool
	// frozen means that the server does nothing while its connections stay open.
	frozen bool
	// granting means that a GRANT waits for its commit. Until then no new connection can log in.
	granting bool
	// wiped means that the volume was lost once, so the server has another identity.
	wiped bool

	readOnly bool
	// executed transactions are committed, waiting ones are in the binary log and wait for replicas, relay ones were
	// received from the source.
	executed, waiting, relay, purged transactions
	source                           int
	io, sql                          bool
	ioErrno, sqlErrno                int
	semiSource, semiReplica          bool
	waitFor                          int
	clone                            CloneState
	donor                            int
	// pending is a hanging statement of the manager. left is the number of steps for which it will still hang.
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

	acks       int
	acksOf     string
	beforeAcks transactions
	past       [maxInstances]modelInstanceHistory
}

type modelInstanceHistory struct {
	unreachable, down, failed, broken, stalled, connecting age

	misses        int
	count         int64
	failure, last string
}

// transactions is a bit set of transactions. Every identity that a server may have owns a range of bits.
type transactions uint64

// transactionsPerServer is the number of transactions of one identity. A server has two identities: before and after
// its volume is lost.
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

// unknownAcks means that the number of guaranteed acknowledgements was never recorded.
const unknownAcks = -1

// parsedSets and readSets cache the conversions between transactions and sets.
var parsedSets, readSets sync.Map

func fromSet(s gtid.Set) transactions {
	text := s.String()
	if t, ok := readSets.Load(text); ok {
		return t.(transactions)
	}
	var t transactions
	for bit := range maxInstances * 2 * transactionsPerServer {
		if one := transactions(1) << bit; s.Contains(one.toSet()) {
			t |= one
		}
	}
	readSets.Store(text, t)
	return t
}

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

// age is the time since the beginning of a state. Zero means never. Ages are capped at forever.
type age time.Duration

const (
	never   age = 0
	forever     = age(time.Minute)
	// shortestInterval is the minimum time between passes.
	shortestInterval = 50 * time.Millisecond
)

func modelTime() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }

func (a age) plus(d time.Duration) age {
	if a == never {
		return never
	}
	return min(a+age(d), forever)
}

// startTime converts an age to the time of its beginning. An age of one nanosecond means now.
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

// newModelState returns a new cluster. Its servers have just started, and there has never been a primary.
func newModelState(n int) modelState {
	w := modelState{primary: NoInstance, guaranteed: unknownAcks}
	w.addInstances(n)
	return w
}

func (w *modelState) addInstances(count int) {
	for range count {
		w.servers[w.n] = modelServer{exists: true, up: true, readOnly: true, source: NoInstance}
		w.n++
	}
}

func (w *modelState) connected(i, j int) bool {
	a, b := &w.servers[i], &w.servers[j]
	return a.up && b.up && !a.cutPeers && !b.cutPeers
}

func (w *modelState) reachable(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && !s.frozen && !s.cutManager
}

// receivesFromSource reports whether a server is connected to its source.
func (w *modelState) receivesFromSource(i int) bool {
	s := &w.servers[i]
	return s.up && s.source != NoInstance && s.io && w.connected(i, s.source) && !w.servers[s.source].granting
}

// countAcknowledgers returns the number of servers that acknowledge commits of a server.
func (w *modelState) countAcknowledgers(i int) int {
	n := 0
	for j := range w.n {
		if j != i && w.hearsSource(j) && w.servers[j].source == i && w.servers[j].semiReplica {
			n++
		}
	}
	return n
}

// hearsSource reports whether a server is connected to its source and neither of them is frozen.
func (w *modelState) hearsSource(i int) bool {
	return w.receivesFromSource(i) && !w.servers[i].frozen && !w.servers[w.servers[i].source].frozen
}

func (s *modelServer) awaitsReplicas() bool { return s.semiSource && s.waitFor > 0 }

// canAcknowledge reports whether a client's commit on a server can be acknowledged.
func (w *modelState) canAcknowledge(i int) bool {
	s := &w.servers[i]
	return s.up && !s.frozen && !s.readOnly && (!s.awaitsReplicas() || w.countAcknowledgers(i) >= s.waitFor)
}

func (w *modelState) heldTransactions(i int) transactions {
	s := &w.servers[i]
	return s.executed | s.waiting | s.relay
}

// isPodReady models the kubelet's readiness probe.
func (w *modelState) isPodReady(i int) bool {
	s := &w.servers[i]
	return s.exists && s.up && s.clone != Cloning && (!s.readOnly || w.receivesFromSource(i) && s.sql && s.sqlErrno == 0)
}

// observe returns the controller's observation: the status, then the replicas, then the primary. An event may happen
// between replicas and primary.
func (w *modelState) observe(between func(*modelState)) Observed {
	o := Observed{Now: modelTime(), Replicas: w.n, ReclonesErrant: w.reclonesErrant, StopAsked: w.stopAsked, StartForced: w.forced, Primary: w.primary, Instances: make([]Instance, w.n)}
	if w.guaranteed != unknownAcks {
		o.GuaranteedAcks = new(w.guaranteed)
	}
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
		Host: host(i), Stopped: s.alone, KnownErrant: w.errant[i], Discarded: w.discarded[i].toSet(),
		Pod: PodFacts{Exists: s.exists, Ready: w.isPodReady(i), Terminating: s.terminating, Demote: s.demote, Reclone: s.reclone, Role: s.role},
	}
	if !w.reachable(i) {
		seen.Refused = s.exists && !s.up && !s.cutManager || s.refuses && s.cutManager
		return seen
	}
	seen.Reachable, seen.UUID, seen.Series = true, uuid(identity(i, s.wiped)), ReleaseSeries{8, 4}
	seen.Pending, seen.PendingFor = s.pending != serverAction{}, time.Duration(s.pendingFor)
	// The server reports super_read_only even while the statement that sets it waits for commits.
	seen.ReadOnly, seen.SuperReadOnly = s.readOnly, s.readOnly || s.pending.do == "SetReadOnly" && s.left == 0
	seen.Executed, seen.Purged, seen.Owned = s.executed.toSet(), s.purged.toSet(), s.waiting.toSet()
	seen.SemiSync = SemiSync{Source: s.semiSource, Replica: s.semiReplica, ReplicaActive: s.semiReplica, WaitFor: s.waitFor, Timeout: endlessTimeout}
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
	c.HeardAgo = 2 * heardTimeout
	switch {
	case w.hearsSource(i):
		c.IO, c.HeardAgo = Running, 0
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
	full := History{StopAskedSince: m.stopAsked.startTime(), ReadOnlySince: m.readOnly.startTime(), GaveUpAt: m.gaveUp.startTime(), Acks: AcksRecord{m.acks, m.acksOf, m.beforeAcks.toSet()}}
	for _, p := range m.past[:n] {
		full.Instances = append(full.Instances, InstanceHistory{
			UnreachableSince: p.unreachable.startTime(), DownSince: p.down.startTime(), Misses: p.misses, NotReplicatingSince: p.broken.startTime(),
			StalledSince: p.stalled.startTime(), ConnectingSince: p.connecting.startTime(), Count: p.count,
			FailedAt: p.failed.startTime(), Failure: p.failure, LastAction: p.last,
		})
	}
	return full
}

func fromHistory(full History) modelHistory {
	m := modelHistory{stopAsked: ageOf(full.StopAskedSince), readOnly: ageOf(full.ReadOnlySince), gaveUp: ageOf(full.GaveUpAt), acks: full.Acks.InForce, acksOf: full.Acks.UUID, beforeAcks: fromSet(full.Acks.Before)}
	for i, p := range full.Instances {
		m.past[i] = modelInstanceHistory{
			unreachable: ageOf(p.UnreachableSince), down: ageOf(p.DownSince), broken: ageOf(p.NotReplicatingSince), misses: min(p.Misses, primaryDownMisses),
			stalled: ageOf(p.StalledSince), connecting: ageOf(p.ConnectingSince), count: p.Count,
			failed: ageOf(p.FailedAt), failure: p.Failure, last: p.LastAction,
		}
	}
	return m
}

func (w *modelState) passTime(d time.Duration) {
	m := &w.history
	for _, a := range []*age{&m.stopAsked, &m.readOnly, &m.gaveUp, &w.stop.since} {
		*a = a.plus(d)
	}
	for i := range w.n {
		for _, a := range []*age{&m.past[i].unreachable, &m.past[i].down, &m.past[i].failed, &m.past[i].broken, &m.past[i].stalled, &m.past[i].connecting, &w.servers[i].pendingFor} {
			*a = a.plus(d)
		}
	}
}

// The following functions model the servers' own progress, their handling of clients, and their execution of
// statements.

// advance is one step of all progress that needs no manager. Stalled servers do not progress.
func (w *modelState) advance(stalled instanceSet) {
	for i := range w.n {
		if !stalled.has(i) {
			w.finishPending(i)
			w.finishClone(i)
		}
	}
	for range 2 { // Transactions are first received and acknowledged, and then committed and received by the other servers.
		for i := range w.n {
			if !stalled.has(i) {
				w.receiveFromSource(i)
			}
		}
		for i := range w.n {
			w.commitAcknowledged(i)
			if !stalled.has(i) {
				w.applyRelayLog(i)
			}
		}
	}
}

type instanceSet uint

func (s instanceSet) has(i int) bool { return s&(1<<i) != 0 }

func (w *modelState) receiveFromSource(i int) {
	s := &w.servers[i]
	if !w.hearsSource(i) {
		return
	}
	source := &w.servers[s.source]
	have := s.executed | s.relay
	if !have.contains(source.purged) {
		s.io, s.ioErrno = false, 1236
		return
	}
	s.relay |= (source.executed | source.waiting) &^ have
}

// commitAcknowledged completes commits that have enough acknowledgements.
func (w *modelState) commitAcknowledged(i int) {
	s := &w.servers[i]
	if !s.up || s.frozen || s.waiting == 0 {
		return
	}
	for bit := transactions(1); bit != 0 && bit <= s.waiting; bit <<= 1 {
		if s.waiting&bit == 0 {
			continue
		}
		acks := 0
		for j := range w.n {
			r := &w.servers[j]
			if j != i && w.hearsSource(j) && r.source == i && r.semiReplica && (r.relay|r.executed)&bit != 0 {
				acks++
			}
		}
		if acks >= s.waitFor {
			s.executed |= bit
			s.waiting &^= bit
			w.acked |= bit
		}
	}
	s.granting = s.granting && s.waiting != 0
}

func (w *modelState) applyRelayLog(i int) {
	s := &w.servers[i]
	if s.up && !s.frozen && s.sql && !s.slow && s.source != NoInstance {
		s.executed |= s.relay
	}
}

func (w *modelState) finishClone(i int) {
	s := &w.servers[i]
	if s.clone != Cloning || s.frozen || w.servers[s.donor].frozen {
		return
	}
	if !w.connected(i, s.donor) {
		s.clone = CloneFailed
		return
	}
	copied := w.servers[s.donor].executed
	w.crashServer(i)
	s.executed, s.purged, s.relay, s.source = copied, copied, 0, NoInstance
	s.clone, s.up = Cloned, true
}

func (w *modelState) clientWrites(i int) {
	s := &w.servers[i]
	if !s.up || s.frozen || s.readOnly || s.pending.do == "SetReadOnly" { // While super_read_only is pending, no transaction begins.
		return
	}
	for k := range transactionsPerServer {
		bit := transactions(1) << (identity(i, s.wiped)*transactionsPerServer + k)
		if (s.executed|s.waiting)&bit != 0 {
			continue
		}
		if s.awaitsReplicas() {
			s.waiting |= bit
		} else {
			s.executed |= bit
			w.acked |= bit
		}
		return
	}
}

// commitDirectly commits a transaction without any check, as root could.
func (w *modelState) commitDirectly(i int) transactions {
	s := &w.servers[i]
	for k := range transactionsPerServer {
		if bit := transactions(1) << (identity(i, s.wiped)*transactionsPerServer + k); w.heldTransactions(i)&bit == 0 {
			s.executed |= bit
			return bit
		}
	}
	return 0
}

// endClients kills client sessions and their waits. Their transactions are committed without an acknowledgement.
func (s *modelServer) endClients() {
	s.executed |= s.waiting
	s.waiting, s.busy, s.granting = 0, false, false
}

// crashServer keeps the contents of the binary log and drops the settings.
func (w *modelState) crashServer(i int) {
	s := &w.servers[i]
	s.endClients()
	s.frozen = false
	s.up, s.readOnly, s.io, s.sql = false, true, false, false
	s.semiSource, s.semiReplica, s.waitFor = false, false, 0
	s.pending, s.left, s.pendingFor = serverAction{}, 0, never
	if s.clone == Cloning {
		s.clone = CloneFailed
	}
}

func (w *modelState) loseVolume(i int) {
	w.crashServer(i)
	s := &w.servers[i]
	s.executed, s.relay, s.purged, s.source, s.clone, s.wiped = 0, 0, 0, NoInstance, NotCloned, true
	s.ioErrno, s.sqlErrno = 0, 0
}

func (w *modelState) removePod(i int) {
	w.crashServer(i)
	s := &w.servers[i]
	s.exists, s.terminating, s.demote, s.reclone, s.role = false, false, false, false, RoleNone
}

func (w *modelState) startServer(i int) {
	s := &w.servers[i]
	s.exists, s.up = true, true
}

type serverAction struct {
	do  string
	arg int
}

func splitByServer(do Action) (map[int]serverAction, bool) {
	switch do := do.(type) {
	case SetReadOnly:
		return map[int]serverAction{do.Index: {"SetReadOnly", 0}}, true
	case MakeWritable:
		return map[int]serverAction{do.Index: {"MakeWritable", do.WaitFor}}, true
	case KillConnections:
		return map[int]serverAction{do.Index: {"KillConnections", map[bool]int{true: 1}[do.EndWaits]}}, true
	case CancelPending:
		return map[int]serverAction{do.Index: {"CancelPending", 0}}, true
	case StopIO:
		acts := map[int]serverAction{}
		for _, i := range do.Indexes {
			acts[i] = serverAction{"StopIO", 0}
		}
		return acts, true
	case StartIO:
		return map[int]serverAction{do.Index: {"StartIO", 0}}, true
	case RestartSQL:
		return map[int]serverAction{do.Index: {"RestartSQL", 0}}, true
	case ConfigurePrimary:
		return map[int]serverAction{do.Index: {"ConfigurePrimary", do.WaitFor}}, true
	case ConfigureReplica:
		return map[int]serverAction{do.Index: {"ConfigureReplica", do.Source}}, true
	case CloneFrom:
		return map[int]serverAction{do.Index: {"CloneFrom", do.Donor}}, true
	case DiscardData:
		return map[int]serverAction{do.Index: {"DiscardData", 0}}, true
	case Nothing, PromoteInStatus, SetRole, SetProtection, ClearDemote, ClearReclone, EndStop, RemoveLeftovers, RestoreDurability, RenewAccounts,
		PrepareRotation, RetainPasswords, PromotePasswords, DiscardPasswords, EndRotation, RenewChannel, ReloadCertificate,
		FinishCopy, FollowOutside, TakeOverAccounts:
	}
	return nil, false
}

// execute executes a statement of the manager. It reports true if the statement is done, and false if it hangs.
func (w *modelState) execute(i int, act serverAction) bool {
	s := &w.servers[i]
	switch act.do {
	case "SetReadOnly":
		if s.waiting != 0 || s.busy {
			return false
		}
		s.readOnly = true
	case "MakeWritable":
		s.semiSource, s.waitFor, s.readOnly = act.arg > 0, act.arg, false
	case "KillConnections":
		s.busy = false
		if act.arg == 1 && (s.readOnly || s.pending.do == "SetReadOnly") { // KILL alone does not end the waits.
			s.endClients()
		}
	case "CancelPending":
		s.pending, s.left, s.pendingFor = serverAction{}, 0, never
	case "StopIO":
		s.pending, s.left, s.pendingFor = serverAction{}, 0, never
		s.io = false
	case "StartIO":
		s.io, s.ioErrno = s.source != NoInstance, 0
	case "RestartSQL":
		s.sql = s.source != NoInstance && s.sqlErrno == 0
	case "ConfigurePrimary":
		s.source, s.relay, s.io, s.sql, s.ioErrno, s.sqlErrno = NoInstance, 0, false, false, 0, 0
		s.semiSource, s.semiReplica, s.waitFor = act.arg > 0, false, act.arg
	case "ConfigureReplica":
		if s.source != act.arg {
			s.source, s.relay, s.sqlErrno = act.arg, 0, 0
		}
		if s.awaitsReplicas() { // Waiting clients continue and consider their transactions safe.
			s.executed |= s.waiting
			w.acked |= s.waiting
			s.waiting, s.granting = 0, false
		}
		s.semiSource, s.semiReplica, s.waitFor = false, true, 0
		s.io, s.ioErrno, s.sql = true, 0, s.sqlErrno == 0
	case "DiscardData":
		s.source, s.relay, s.io, s.sql, s.ioErrno, s.sqlErrno = NoInstance, 0, false, false, 0, 0
		s.executed, s.purged = 0, 0
	case "CloneFrom":
		if w.heldTransactions(i) == 0 {
			s.clone, s.donor = Cloning, act.arg
		}
	}
	return true
}

// finishPending executes a pending statement if it no longer hangs.
func (w *modelState) finishPending(i int) {
	s := &w.servers[i]
	if s.pending == (serverAction{}) || !s.up || s.frozen {
		return
	}
	if s.left > 0 {
		s.left--
		return
	}
	if act := s.pending; w.execute(i, act) {
		s.pending, s.pendingFor = serverAction{}, never
	}
}

// send sends an action to a server. The action runs immediately, or later as a pending statement.
func (w *modelState) send(i int, act serverAction, late int) error {
	s := &w.servers[i]
	interrupts := act.do == "StopIO" || act.do == "CancelPending" || act.do == "KillConnections"
	switch {
	case !w.reachable(i):
		return errUnreachable
	case s.pending != (serverAction{}) && !interrupts:
		return errBusy
	case late > 0 && s.pending == (serverAction{}):
		s.pending, s.left, s.pendingFor = act, late, 1
	case !w.execute(i, act):
		s.pending, s.left, s.pendingFor = act, 0, 1
	}
	return nil
}
