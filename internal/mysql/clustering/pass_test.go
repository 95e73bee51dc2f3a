// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

var (
	errUnreachable = errors.New("no answer")
	errBusy        = errors.New("a statement still runs")
	errConflict    = errors.New("the status has changed")
	errTold        = errors.New("refused")
)

// fate is what becomes of an act.
type fate string

const (
	done   fate = "done"
	failed fate = "the act fails"
	late   fate = "the act hangs for a while"
	partly fate = "the act succeeds for one instance only"
	killed fate = "the manager is killed after the act"
	halved fate = "the manager is killed while the act hangs"
)

func fates() []fate { return []fate{failed, late, partly, killed, halved} }

// turn is what goes wrong in one pass.
type turn struct {
	// during happens between the looks at the replicas and at the primary, between happens between the look and the act.
	during, between event
	fate            fate
	// stalled servers neither receive nor apply.
	stalled instances
	// idle is how many passes have changed nothing: time may leap.
	idle int
}

func calm(idle int) turn { return turn{fate: done, idle: idle} }

// pass is one pass of the manager: it looks, something may happen, it acts and saves; then everything goes on a bit.
func (w *world) pass(t turn) Plan {
	o := w.observe(t.during.to)
	w.remembered = keep(o.Memory)
	p := Decide(o)
	t.between.to(w)
	err := w.act(p.Do, t.fate)
	switch t.fate {
	case killed, halved:
		w.remembered = toyMemory{}
	case done, failed, late, partly:
		w.save(p)
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		w.remembered = keep(o.Memory.Noted(p.Do, worldTime(), failure))
	}
	w.tick(min(max(p.After, moment)<<min(t.idle, 8), 5*time.Second))
	w.progress(t.stalled)
	return p
}

func (w *world) save(p Plan) {
	switch {
	case p.Stop == nil:
		w.stop = toyStop{}
	case !w.stop.reached:
		w.stop = toyStop{reached: true, since: 1, left: p.Stop.Left}
	}
	w.errant = [most]bool{}
	for _, i := range p.Errant {
		w.errant[i] = true
	}
}

func (w *world) act(do Action, f fate) error {
	if f == failed {
		return errTold
	}
	switch do := do.(type) {
	case PromoteInStatus:
		if w.primary != do.From {
			return errConflict
		}
		w.primary = do.Index
	case SetRole:
		s := &w.servers[do.Index]
		if !s.exists {
			return errUnreachable
		}
		if do.Role != NoRole && w.reachable(do.Index) {
			s.cutOff()
		}
		s.role = do.Role
	case ClearDemote:
		w.servers[do.Index].demote = false
	case Nothing, SetReadOnly, MakeWritable, KillConnections, CancelPending, StopIO, StartIO, RestartSQL, ConfigurePrimary, ConfigureReplica, CloneFrom:
		return w.tellAll(do, f)
	}
	return nil
}

func (w *world) tellAll(do Action, f fate) error {
	acts, _ := split(do)
	var err error
	for at, i := range slices.Sorted(maps.Keys(acts)) {
		if f == partly && at > 0 {
			return errTold
		}
		wait := 0
		if f == late || f == halved {
			wait = 2
		}
		err = errors.Join(err, w.tell(i, acts[i], wait))
	}
	return err
}

// unsafe says which promise a world breaks.
func (w *world) unsafe() []string {
	var wrong []string
	var open []int
	for i := range w.n {
		if w.acknowledges(i) {
			open = append(open, i)
		}
	}
	if len(open) > 1 {
		wrong = append(wrong, fmt.Sprintf("instances %v can acknowledge", open))
	}
	if w.primary != None && w.acknowledges(w.primary) {
		s := &w.servers[w.primary]
		if lost := w.acked &^ (s.executed | s.waiting); lost != 0 {
			wrong = append(wrong, fmt.Sprintf("the primary lacks what was acknowledged: %s", lost.set()))
		}
	}
	return wrong
}

// dropped says which acknowledged transactions an act took from an instance that held them.
func dropped(before, after *world) []string {
	var wrong []string
	for i := range before.n {
		if lost := before.held(i) & before.acked &^ after.held(i); lost != 0 && before.servers[i].wiped == after.servers[i].wiped {
			wrong = append(wrong, fmt.Sprintf("instance %d forgets %s", i, lost.set()))
		}
	}
	return wrong
}

// still is the world without the ages, which pass by themselves.
func (w *world) still() world {
	s := *w
	s.remembered, s.stop.since = toyMemory{}, never
	for i := range s.n {
		s.servers[i].pendingFor = never
	}
	return s
}

// canLose: somebody else has everything that was acknowledged, and nothing was lost before, so that a majority survives.
func (w *world) canLose(i int) bool {
	var others txns
	for j := range w.n {
		if j != i {
			others |= w.held(j)
		}
	}
	return w.n > 1 && others.has(w.acked) && w.rooted == 0 && !w.anyWiped()
}

func (w *world) anyWiped() bool {
	return slices.ContainsFunc(w.servers[:], func(s server) bool { return s.wiped })
}

// heal ends all troubles but those that only people can mend.
func (w *world) heal() {
	for i := range w.n {
		s := &w.servers[i]
		if s.terminating {
			w.podGone(i)
		}
		s.cutManager, s.cutPeers, s.slow, s.busy, s.alone, s.sqlErrno = false, false, false, false, false, 0
		w.back(i)
	}
}

// event is something that happens between two moments.
type event struct {
	name    string
	happens func(*world) bool
}

// to lets it happen; nothing does not.
func (e event) to(w *world) {
	if e.happens != nil {
		e.happens(w)
	}
}

// events are what can happen to a cluster of n. An event that cannot happen now does not.
func events(n int) []event {
	list := []event{
		{"the manager is killed", func(w *world) bool { w.remembered = toyMemory{}; return true }},
		{"a stop is asked for", func(w *world) bool { was := w.stopAsked; w.stopAsked = true; return !was }},
		{"a start is asked for", func(w *world) bool { was := w.stopAsked; w.stopAsked = false; return was }},
		{"the power fails", func(w *world) bool {
			for i := range w.n {
				w.crash(i)
			}
			return true
		}},
		{"the power is back", func(w *world) bool {
			for i := range w.n {
				w.back(i)
			}
			return true
		}},
		{"the status is lost", func(w *world) bool {
			happens := w.primary != None && w.rooted == 0
			if happens {
				w.primary, w.stop, w.errant = None, toyStop{}, [most]bool{}
			}
			return happens
		}},
		{"nothing moves for a while", func(w *world) bool { w.tick(20 * time.Second); return true }},
	}
	for i := range n {
		list = append(list, eventsOf(i)...)
	}
	return list
}

func writes(i int) event {
	return event{fmt.Sprintf("a client writes to %d", i), func(w *world) bool { before := *w; w.write(i); return before != *w }}
}

func eventsOf(i int) []event {
	toggle := func(what string, field func(*server) *bool) event {
		return event{fmt.Sprintf("%s %d", what, i), func(w *world) bool { b := field(&w.servers[i]); *b = !*b; return true }}
	}
	return []event{
		writes(i),
		{fmt.Sprintf("%d crashes", i), func(w *world) bool { was := w.servers[i].up; w.crash(i); return was }},
		{fmt.Sprintf("%d starts", i), func(w *world) bool { was := w.servers[i].up; w.back(i); return !was }},
		{fmt.Sprintf("%d restarts", i), func(w *world) bool { w.crash(i); w.back(i); return true }},
		{fmt.Sprintf("pod %d is deleted", i), func(w *world) bool {
			s := &w.servers[i]
			happens := s.exists && !s.terminating
			s.terminating = s.exists
			return happens
		}},
		{fmt.Sprintf("pod %d is gone", i), func(w *world) bool { was := w.servers[i].terminating; w.podGone(i); return was }},
		{fmt.Sprintf("pod %d is told to step down", i), func(w *world) bool {
			s := &w.servers[i]
			happens := s.exists && !s.demote && i == w.primary
			s.demote = s.demote || happens
			return happens
		}},
		toggle("the manager loses or finds", func(s *server) *bool { return &s.cutManager }),
		toggle("the others lose or find", func(s *server) *bool { return &s.cutPeers }),
		{fmt.Sprintf("everybody loses %d", i), func(w *world) bool {
			s := &w.servers[i]
			happens := !s.cutManager || !s.cutPeers
			s.cutManager, s.cutPeers = true, true
			return happens
		}},
		toggle("slow or fast becomes", func(s *server) *bool { return &s.slow }),
		toggle("left alone or not is", func(s *server) *bool { return &s.alone }),
		{fmt.Sprintf("an error stops the SQL thread of %d", i), func(w *world) bool {
			s := &w.servers[i]
			happens := s.up && s.sql
			if happens {
				s.sql, s.sqlErrno = false, 1062
			}
			return happens
		}},
		{fmt.Sprintf("somebody stops the SQL thread of %d", i), func(w *world) bool { s := &w.servers[i]; was := s.sql; s.sql = false; return was }},
		{fmt.Sprintf("somebody stops the IO thread of %d", i), func(w *world) bool { s := &w.servers[i]; was := s.io; s.io = false; return was }},
		{fmt.Sprintf("somebody makes %d read-only", i), func(w *world) bool {
			s := &w.servers[i]
			happens := !s.readOnly && s.waiting == 0 && !s.busy
			s.readOnly = s.readOnly || happens
			return happens
		}},
		{fmt.Sprintf("the root of replica %d writes", i), func(w *world) bool {
			happens := w.servers[i].up && w.servers[i].readOnly && i != w.primary && w.primary != None && w.acked != 0 && !w.anyWiped()
			if happens {
				w.rooted |= w.number(i)
			}
			return happens
		}},
		{fmt.Sprintf("%d deletes its binary logs", i), func(w *world) bool {
			s := &w.servers[i]
			happens := s.up && s.purged != s.executed
			s.purged = s.executed
			return happens
		}},
		{fmt.Sprintf("the volume of %d is lost", i), func(w *world) bool {
			happens := w.canLose(i)
			if happens {
				w.wipe(i)
			}
			return happens
		}},
		{fmt.Sprintf("a client locks %d", i), func(w *world) bool {
			s := &w.servers[i]
			happens := s.up && !s.readOnly && !s.busy
			s.busy = s.busy || happens
			return happens
		}},
	}
}
