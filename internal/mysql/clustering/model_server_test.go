// SPDX-License-Identifier: Apache-2.0

package clustering

// What the model's servers do by themselves, for their clients, and when they are told to.

// advance is one step of everything that goes on by itself, but on servers that stall.
func (w *modelState) advance(stalled instanceSet) {
	for i := range w.n {
		if !stalled.has(i) {
			w.finishPending(i)
			w.finishClone(i)
		}
	}
	for range 2 { // What is received is acknowledged, and what is acknowledged is committed, then received by others.
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

// instanceSet is a set of them.
type instanceSet uint

func (s instanceSet) has(i int) bool { return s&(1<<i) != 0 }

func (w *modelState) receiveFromSource(i int) {
	s := &w.servers[i]
	if !w.receivesFromSource(i) {
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

// commitAcknowledged ends the wait for replicas.
func (w *modelState) commitAcknowledged(i int) {
	s := &w.servers[i]
	if !s.up || s.waiting == 0 {
		return
	}
	for bit := transactions(1); bit != 0 && bit <= s.waiting; bit <<= 1 {
		if s.waiting&bit == 0 {
			continue
		}
		acks := 0
		for j := range w.n {
			r := &w.servers[j]
			if j != i && w.receivesFromSource(j) && r.source == i && r.semiReplica && (r.relay|r.executed)&bit != 0 {
				acks++
			}
		}
		if acks >= s.waitFor {
			s.executed |= bit
			s.waiting &^= bit
			w.acked |= bit
		}
	}
}

func (w *modelState) applyRelayLog(i int) {
	s := &w.servers[i]
	if s.up && s.sql && !s.slow && s.source != NoInstance {
		s.executed |= s.relay
	}
}

func (w *modelState) finishClone(i int) {
	s := &w.servers[i]
	if s.clone != Cloning {
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

// clientWrites is a client that commits something.
func (w *modelState) clientWrites(i int) {
	s := &w.servers[i]
	if !s.up || s.readOnly || s.pending.do == "SetReadOnly" { // A pending super_read_only lets no transaction begin.
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

// commitDirectly commits a transaction past all rules, as root would.
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

// endClients ends clients. What they wait for is committed, and they get no acknowledgement.
func (s *modelServer) endClients() {
	s.executed |= s.waiting
	s.waiting, s.busy = 0, false
}

// crashServer keeps what is in the binary log and drops the settings.
func (w *modelState) crashServer(i int) {
	s := &w.servers[i]
	s.endClients()
	s.up, s.readOnly, s.io, s.sql = false, true, false, false
	s.semiSource, s.semiReplica, s.waitFor = false, false, 0
	s.pending, s.left, s.pendingFor = serverAction{}, 0, never
	if s.clone == Cloning {
		s.clone = CloneFailed
	}
}

// loseVolume loses the volume.
func (w *modelState) loseVolume(i int) {
	w.crashServer(i)
	s := &w.servers[i]
	s.executed, s.relay, s.purged, s.source, s.clone, s.wiped = 0, 0, 0, NoInstance, NotCloned, true
	s.ioErrno, s.sqlErrno = 0, 0
}

func (w *modelState) removePod(i int) {
	w.crashServer(i)
	s := &w.servers[i]
	s.exists, s.terminating, s.demote, s.role = false, false, false, RoleNone
}

func (w *modelState) startServer(i int) {
	s := &w.servers[i]
	s.exists, s.up = true, true
}

// serverAction is an act on one instance, comparable.
type serverAction struct {
	do  string
	arg int
}

// splitByServer turns an action into acts on single instances.
func splitByServer(do Action) (map[int]serverAction, bool) {
	switch do := do.(type) {
	case SetReadOnly:
		return map[int]serverAction{do.Index: {"SetReadOnly", 0}}, true
	case MakeWritable:
		return map[int]serverAction{do.Index: {"MakeWritable", do.WaitFor}}, true
	case KillConnections:
		return map[int]serverAction{do.Index: {"KillConnections", 0}}, true
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
	case Nothing, PromoteInStatus, SetRole, ClearDemote, EndStop:
	}
	return nil, false
}

// execute executes a statement of ours; it says whether it is done or hangs.
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
		s.endClients()
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
		if s.awaitsReplicas() { // Who waits is let go, and believes to be safe.
			s.executed |= s.waiting
			w.acked |= s.waiting
			s.waiting = 0
		}
		s.semiSource, s.semiReplica, s.waitFor = false, true, 0
		s.io, s.ioErrno, s.sql = true, 0, s.sqlErrno == 0
	case "CloneFrom":
		if w.heldTransactions(i) == 0 {
			s.clone, s.donor = Cloning, act.arg
		}
	}
	return true
}

// finishPending executes a statement that hung, if it can go on.
func (w *modelState) finishPending(i int) {
	s := &w.servers[i]
	if s.pending == (serverAction{}) || !s.up {
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

// send hands an act to a server: at once, or late as a statement that still runs.
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
