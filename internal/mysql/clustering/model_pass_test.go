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
	errRefused     = errors.New("refused")
)

// actionOutcome is what becomes of an act.
type actionOutcome string

const (
	succeeds            actionOutcome = "done"
	fails               actionOutcome = "the act fails"
	hangsForAWhile      actionOutcome = "the act hangs for a while"
	succeedsPartly      actionOutcome = "the act succeeds for one instance only"
	managerKilledAfter  actionOutcome = "the manager is killed after the act"
	managerKilledDuring actionOutcome = "the manager is killed while the act hangs"
)

func badOutcomes() []actionOutcome {
	return []actionOutcome{fails, hangsForAWhile, succeedsPartly, managerKilledAfter, managerKilledDuring}
}

// passDisturbance is what goes wrong in one pass.
type passDisturbance struct {
	// during happens between the looks at the replicas and at the primary, between happens between the look and the act.
	during, between modelEvent
	outcome         actionOutcome
	// stalled servers neither receive nor apply.
	stalled instanceSet
	// idle is how many passes have changed nothing: time may leap.
	idle int
}

func undisturbed(idle int) passDisturbance { return passDisturbance{outcome: succeeds, idle: idle} }

// runPass is one pass of the manager: it looks, something may happen, it acts and saves; then everything goes on a bit.
func (w *modelState) runPass(t passDisturbance) Plan {
	o := w.observe(t.during.applyTo)
	w.history = fromHistory(o.History)
	p := Decide(o)
	t.between.applyTo(w)
	err := w.performAction(p.Do, t.outcome)
	switch t.outcome {
	case managerKilledAfter, managerKilledDuring:
		w.history = modelHistory{}
	case succeeds, fails, hangsForAWhile, succeedsPartly:
		w.saveStatus(p)
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		w.history = fromHistory(o.History.WithResult(p.Do, modelTime(), failure))
	}
	w.passTime(min(max(p.After, shortestInterval)<<min(t.idle, 8), 5*time.Second))
	w.advance(t.stalled)
	return p
}

func (w *modelState) saveStatus(p Plan) {
	switch {
	case p.Stop == nil:
		w.stop = modelStop{}
	case !w.stop.reached:
		w.stop = modelStop{reached: true, since: 1, left: p.Stop.Unfinished}
	}
	w.errant = [maxInstances]bool{}
	for _, i := range p.Errant {
		w.errant[i] = true
	}
}

func (w *modelState) performAction(do Action, f actionOutcome) error {
	if f == fails {
		return errRefused
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
		if do.Role != RoleNone && w.reachable(do.Index) {
			s.endClients()
		}
		s.role = do.Role
	case ClearDemote:
		w.servers[do.Index].demote = false
	case Nothing, EndStop, SetReadOnly, MakeWritable, KillConnections, CancelPending, StopIO, StartIO, RestartSQL, ConfigurePrimary, ConfigureReplica, CloneFrom:
		return w.sendAll(do, f)
	}
	return nil
}

func (w *modelState) sendAll(do Action, f actionOutcome) error {
	acts, _ := splitByServer(do)
	var err error
	for at, i := range slices.Sorted(maps.Keys(acts)) {
		if f == succeedsPartly && at > 0 {
			return errRefused
		}
		wait := 0
		if f == hangsForAWhile || f == managerKilledDuring {
			wait = 2
		}
		err = errors.Join(err, w.send(i, acts[i], wait))
	}
	return err
}

// findBrokenPromises says which promise a state breaks.
func (w *modelState) findBrokenPromises() []string {
	var wrong []string
	var open []int
	for i := range w.n {
		if w.canAcknowledge(i) {
			open = append(open, i)
		}
	}
	if len(open) > 1 {
		wrong = append(wrong, fmt.Sprintf("instances %v can acknowledge", open))
	}
	if w.primary != NoInstance && w.canAcknowledge(w.primary) {
		s := &w.servers[w.primary]
		if lost := w.acked &^ (s.executed | s.waiting); lost != 0 {
			wrong = append(wrong, fmt.Sprintf("the primary lacks what was acknowledged: %s", lost.toSet()))
		}
	}
	return wrong
}

// findForgottenTransactions says which acknowledged transactions an act took from an instance that held them.
func findForgottenTransactions(before, after *modelState) []string {
	var wrong []string
	for i := range before.n {
		if lost := before.heldTransactions(i) & before.acked &^ after.heldTransactions(i); lost != 0 && before.servers[i].wiped == after.servers[i].wiped {
			wrong = append(wrong, fmt.Sprintf("instance %d forgets %s", i, lost.toSet()))
		}
	}
	return wrong
}

// withoutAges is the state without the ages, which pass by themselves.
func (w *modelState) withoutAges() modelState {
	s := *w
	s.history, s.stop.since = modelHistory{}, never
	for i := range s.n {
		s.servers[i].pendingFor = never
	}
	return s
}

// mayLoseVolume reports whether the others have everything that was acknowledged, and nothing was lost before, so that a
// majority survives.
func (w *modelState) mayLoseVolume(i int) bool {
	var others transactions
	for j := range w.n {
		if j != i {
			others |= w.heldTransactions(j)
		}
	}
	return w.n > 1 && others.contains(w.acked) && w.rooted == 0 && !w.hasLostVolume()
}

func (w *modelState) hasLostVolume() bool {
	return slices.ContainsFunc(w.servers[:], func(s modelServer) bool { return s.wiped })
}

// endTroubles ends all troubles but those that only people can mend.
func (w *modelState) endTroubles() {
	for i := range w.n {
		s := &w.servers[i]
		if s.terminating {
			w.removePod(i)
		}
		s.cutManager, s.cutPeers, s.slow, s.busy, s.alone, s.sqlErrno = false, false, false, false, false, 0
		w.startServer(i)
	}
}

// modelEvent is something that happens between two moments.
type modelEvent struct {
	name  string
	apply func(*modelState) bool
}

// applyTo lets it happen; nothing does not.
func (e modelEvent) applyTo(w *modelState) {
	if e.apply != nil {
		e.apply(w)
	}
}

// eventsOfCluster are what can happen to a cluster of n. An event that cannot happen now does not.
func eventsOfCluster(n int) []modelEvent {
	list := []modelEvent{
		{"the manager is killed", func(w *modelState) bool { w.history = modelHistory{}; return true }},
		{"a stop is asked for", func(w *modelState) bool { was := w.stopAsked; w.stopAsked = true; return !was }},
		{"a start is asked for", func(w *modelState) bool { was := w.stopAsked; w.stopAsked = false; return was }},
		{"the power fails", func(w *modelState) bool {
			for i := range w.n {
				w.crashServer(i)
			}
			return true
		}},
		{"the power is back", func(w *modelState) bool {
			for i := range w.n {
				w.startServer(i)
			}
			return true
		}},
		{"the status is lost", func(w *modelState) bool {
			happens := w.primary != NoInstance && w.rooted == 0
			if happens {
				w.primary, w.stop, w.errant = NoInstance, modelStop{}, [maxInstances]bool{}
			}
			return happens
		}},
		{"nothing moves for a while", func(w *modelState) bool { w.passTime(20 * time.Second); return true }},
	}
	for i := range n {
		list = append(list, eventsOfInstance(i)...)
	}
	return list
}

func clientWriteEvent(i int) modelEvent {
	return modelEvent{fmt.Sprintf("a client writes to %d", i), func(w *modelState) bool { before := *w; w.clientWrites(i); return before != *w }}
}

func eventsOfInstance(i int) []modelEvent {
	toggle := func(what string, field func(*modelServer) *bool) modelEvent {
		return modelEvent{fmt.Sprintf("%s %d", what, i), func(w *modelState) bool { b := field(&w.servers[i]); *b = !*b; return true }}
	}
	return []modelEvent{
		clientWriteEvent(i),
		{fmt.Sprintf("%d crashes", i), func(w *modelState) bool { was := w.servers[i].up; w.crashServer(i); return was }},
		{fmt.Sprintf("%d starts", i), func(w *modelState) bool { was := w.servers[i].up; w.startServer(i); return !was }},
		{fmt.Sprintf("%d restarts", i), func(w *modelState) bool { w.crashServer(i); w.startServer(i); return true }},
		{fmt.Sprintf("pod %d is deleted", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.exists && !s.terminating
			s.terminating = s.exists
			return happens
		}},
		{fmt.Sprintf("pod %d is gone", i), func(w *modelState) bool { was := w.servers[i].terminating; w.removePod(i); return was }},
		{fmt.Sprintf("pod %d is told to step down", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.exists && !s.demote && i == w.primary
			s.demote = s.demote || happens
			return happens
		}},
		toggle("the manager loses or finds", func(s *modelServer) *bool { return &s.cutManager }),
		toggle("the others lose or find", func(s *modelServer) *bool { return &s.cutPeers }),
		{fmt.Sprintf("everybody loses %d", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := !s.cutManager || !s.cutPeers
			s.cutManager, s.cutPeers = true, true
			return happens
		}},
		toggle("slow or fast becomes", func(s *modelServer) *bool { return &s.slow }),
		toggle("left alone or not is", func(s *modelServer) *bool { return &s.alone }),
		{fmt.Sprintf("an error stops the SQL thread of %d", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.up && s.sql
			if happens {
				s.sql, s.sqlErrno = false, 1062
			}
			return happens
		}},
		{fmt.Sprintf("somebody stops the SQL thread of %d", i), func(w *modelState) bool { s := &w.servers[i]; was := s.sql; s.sql = false; return was }},
		{fmt.Sprintf("somebody stops the IO thread of %d", i), func(w *modelState) bool { s := &w.servers[i]; was := s.io; s.io = false; return was }},
		{fmt.Sprintf("somebody makes %d read-only", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := !s.readOnly && s.waiting == 0 && !s.busy
			s.readOnly = s.readOnly || happens
			return happens
		}},
		{fmt.Sprintf("the root of replica %d writes", i), func(w *modelState) bool {
			happens := w.servers[i].up && w.servers[i].readOnly && i != w.primary && w.primary != NoInstance && w.acked != 0 && !w.hasLostVolume()
			if happens {
				w.rooted |= w.commitDirectly(i)
			}
			return happens
		}},
		{fmt.Sprintf("%d deletes its binary logs", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.up && s.purged != s.executed
			s.purged = s.executed
			return happens
		}},
		{fmt.Sprintf("the volume of %d is lost", i), func(w *modelState) bool {
			happens := w.mayLoseVolume(i)
			if happens {
				w.loseVolume(i)
			}
			return happens
		}},
		{fmt.Sprintf("a client locks %d", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.up && !s.readOnly && !s.busy
			s.busy = s.busy || happens
			return happens
		}},
	}
}
