// SPDX-License-Identifier: Apache-2.0

package clustering

// What the toy servers do by themselves, for their clients, and when they are told to.

// progress is one step of everything that goes on by itself, but on servers that stall.
func (w *world) progress(stalled instances) {
	for i := range w.n {
		if !stalled.has(i) {
			w.land(i)
			w.finishClone(i)
		}
	}
	for range 2 { // What is received is acknowledged, and what is acknowledged is committed, then received by others.
		for i := range w.n {
			if !stalled.has(i) {
				w.receive(i)
			}
		}
		for i := range w.n {
			w.commit(i)
			if !stalled.has(i) {
				w.apply(i)
			}
		}
	}
}

// instances is a set of them.
type instances uint

func (s instances) has(i int) bool { return s&(1<<i) != 0 }

func (w *world) receive(i int) {
	s := &w.servers[i]
	if !w.receives(i) {
		return
	}
	source := &w.servers[s.source]
	have := s.executed | s.relay
	if !have.has(source.purged) {
		s.io, s.ioErrno = false, 1236
		return
	}
	s.relay |= (source.executed | source.waiting) &^ have
}

// commit ends the wait for replicas.
func (w *world) commit(i int) {
	s := &w.servers[i]
	if !s.up || s.waiting == 0 {
		return
	}
	for bit := txns(1); bit != 0 && bit <= s.waiting; bit <<= 1 {
		if s.waiting&bit == 0 {
			continue
		}
		acks := 0
		for j := range w.n {
			r := &w.servers[j]
			if j != i && w.receives(j) && r.source == i && r.semiReplica && (r.relay|r.executed)&bit != 0 {
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

func (w *world) apply(i int) {
	s := &w.servers[i]
	if s.up && s.sql && !s.slow && s.source != None {
		s.executed |= s.relay
	}
}

func (w *world) finishClone(i int) {
	s := &w.servers[i]
	if s.clone != Cloning {
		return
	}
	if !w.connected(i, s.donor) {
		s.clone = CloneFailed
		return
	}
	copied := w.servers[s.donor].executed
	w.crash(i)
	s.executed, s.purged, s.relay, s.source = copied, copied, 0, None
	s.clone, s.up = Cloned, true
}

// write is a client that commits something.
func (w *world) write(i int) {
	s := &w.servers[i]
	if !s.up || s.readOnly || s.pending.do == "SetReadOnly" { // A pending super_read_only lets nobody begin.
		return
	}
	for k := range numbers {
		bit := txns(1) << (identity(i, s.wiped)*numbers + k)
		if (s.executed|s.waiting)&bit != 0 {
			continue
		}
		if s.waits() {
			s.waiting |= bit
		} else {
			s.executed |= bit
			w.acked |= bit
		}
		return
	}
}

// number makes somebody commit something past all rules.
func (w *world) number(i int) txns {
	s := &w.servers[i]
	for k := range numbers {
		if bit := txns(1) << (identity(i, s.wiped)*numbers + k); w.held(i)&bit == 0 {
			s.executed |= bit
			return bit
		}
	}
	return 0
}

// cutOff ends clients: what they wait for is committed, and they are not told.
func (s *server) cutOff() {
	s.executed |= s.waiting
	s.waiting, s.busy = 0, false
}

// crash: what is in the binary log is there after the start, settings are not.
func (w *world) crash(i int) {
	s := &w.servers[i]
	s.cutOff()
	s.up, s.readOnly, s.io, s.sql = false, true, false, false
	s.semiSource, s.semiReplica, s.waitFor = false, false, 0
	s.pending, s.left, s.pendingFor = toyAct{}, 0, never
	if s.clone == Cloning {
		s.clone = CloneFailed
	}
}

// wipe loses the volume.
func (w *world) wipe(i int) {
	w.crash(i)
	s := &w.servers[i]
	s.executed, s.relay, s.purged, s.source, s.clone, s.wiped = 0, 0, 0, None, NotCloned, true
	s.ioErrno, s.sqlErrno = 0, 0
}

func (w *world) podGone(i int) {
	w.crash(i)
	s := &w.servers[i]
	s.exists, s.terminating, s.demote, s.role = false, false, false, NoRole
}

func (w *world) back(i int) {
	s := &w.servers[i]
	s.exists, s.up = true, true
}

// toyAct is an act on one instance, comparable.
type toyAct struct {
	do  string
	arg int
}

// split turns an action into acts on single instances.
func split(do Action) (map[int]toyAct, bool) {
	switch do := do.(type) {
	case SetReadOnly:
		return map[int]toyAct{do.Index: {"SetReadOnly", 0}}, true
	case MakeWritable:
		return map[int]toyAct{do.Index: {"MakeWritable", do.WaitFor}}, true
	case KillConnections:
		return map[int]toyAct{do.Index: {"KillConnections", 0}}, true
	case CancelPending:
		return map[int]toyAct{do.Index: {"CancelPending", 0}}, true
	case StopIO:
		acts := map[int]toyAct{}
		for _, i := range do.Indexes {
			acts[i] = toyAct{"StopIO", 0}
		}
		return acts, true
	case StartIO:
		return map[int]toyAct{do.Index: {"StartIO", 0}}, true
	case RestartSQL:
		return map[int]toyAct{do.Index: {"RestartSQL", 0}}, true
	case ConfigurePrimary:
		return map[int]toyAct{do.Index: {"ConfigurePrimary", do.WaitFor}}, true
	case ConfigureReplica:
		return map[int]toyAct{do.Index: {"ConfigureReplica", do.Source}}, true
	case CloneFrom:
		return map[int]toyAct{do.Index: {"CloneFrom", do.Donor}}, true
	case Nothing, PromoteInStatus, SetRole, ClearDemote:
	}
	return nil, false
}

// run executes a statement of ours; it says whether it is done or hangs.
func (w *world) run(i int, act toyAct) bool {
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
		s.cutOff()
	case "CancelPending":
		s.pending, s.left, s.pendingFor = toyAct{}, 0, never
	case "StopIO":
		s.pending, s.left, s.pendingFor = toyAct{}, 0, never
		s.io = false
	case "StartIO":
		s.io, s.ioErrno = s.source != None, 0
	case "RestartSQL":
		s.sql = s.source != None && s.sqlErrno == 0
	case "ConfigurePrimary":
		s.source, s.relay, s.io, s.sql, s.ioErrno, s.sqlErrno = None, 0, false, false, 0, 0
		s.semiSource, s.semiReplica, s.waitFor = act.arg > 0, false, act.arg
	case "ConfigureReplica":
		if s.source != act.arg {
			s.source, s.relay, s.sqlErrno = act.arg, 0, 0
		}
		if s.waits() { // Who waits is let go, and believes to be safe.
			s.executed |= s.waiting
			w.acked |= s.waiting
			s.waiting = 0
		}
		s.semiSource, s.semiReplica, s.waitFor = false, true, 0
		s.io, s.ioErrno, s.sql = true, 0, s.sqlErrno == 0
	case "CloneFrom":
		if w.held(i) == 0 {
			s.clone, s.donor = Cloning, act.arg
		}
	}
	return true
}

// land executes a statement that hung, if it can go on.
func (w *world) land(i int) {
	s := &w.servers[i]
	if s.pending == (toyAct{}) || !s.up {
		return
	}
	if s.left > 0 {
		s.left--
		return
	}
	if act := s.pending; w.run(i, act) {
		s.pending, s.pendingFor = toyAct{}, never
	}
}

// tell hands an act to a server: at once, or late as somebody's statement that still runs.
func (w *world) tell(i int, act toyAct, late int) error {
	s := &w.servers[i]
	interrupts := act.do == "StopIO" || act.do == "CancelPending" || act.do == "KillConnections"
	switch {
	case !w.reachable(i):
		return errUnreachable
	case s.pending != (toyAct{}) && !interrupts:
		return errBusy
	case late > 0 && s.pending == (toyAct{}):
		s.pending, s.left, s.pendingFor = act, late, 1
	case !w.run(i, act):
		s.pending, s.left, s.pendingFor = act, 0, 1
	}
	return nil
}
