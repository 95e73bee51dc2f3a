// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/decision"
)

// modelTrace is a state with the steps that led to the state.
type modelTrace struct {
	modelState
	steps []string
}

func (s modelTrace) withStep(what string) modelTrace {
	return modelTrace{s.modelState, append(slices.Clip(s.steps), what)}
}

type modelExplorer struct {
	t     *testing.T
	steps int
	// conditions are the conditions that the last sequence of passes reported.
	conditions [][4]decision.Condition
}

func newModelExplorer(t *testing.T) *modelExplorer {
	t.Helper()
	return &modelExplorer{t: t}
}

func (a *modelExplorer) runPass(s modelTrace, t passDisturbance) (modelTrace, Plan) {
	a.steps++
	before := s.modelState
	next := before
	p := next.runPass(t)
	s.modelState = next
	line := fmt.Sprintf("%s: %T%v", p.Rule, p.Do, p.Do)
	for when, e := range map[string]modelEvent{"during the look": t.during, "before the act": t.between} {
		if e.apply != nil {
			line += fmt.Sprintf(", %s %s", when, e.name)
		}
	}
	if t.outcome != succeeds {
		line += ", but " + string(t.outcome)
	}
	s = s.withStep(line)
	wrong := append(next.findBrokenPromises(), findForgottenTransactions(&before, &next, p.Do)...)
	if t.during.apply == nil && p.Rule == "fence for a failover" && before.isHeardByReplicas() {
		wrong = append(wrong, "fences a primary whose replicas receive from it")
	}
	isAlone := t.during.apply == nil && t.between.apply == nil // An event in the same pass may lose the volume.
	if do, promotes := p.Do.(PromoteInStatus); promotes && isAlone && next.primary == do.Index && before.primary == do.From {
		if lost := next.acked &^ next.heldTransactions(do.Index); lost != 0 {
			wrong = append(wrong, fmt.Sprintf("the new primary lacks acknowledged transactions: %s", lost.toSet()))
		}
	}
	if before.stopAsked {
		wrong = append(wrong, findForbiddenBeginnings(&before, p)...)
	}
	a.failOn(s, wrong)
	return s, p
}

// isHeardByReplicas reports whether enough replicas receive from the writable primary, as far as the manager can
// observe.
func (w *modelState) isHeardByReplicas() bool {
	heard := 0
	for i := range w.n {
		if w.reachable(i) && w.hearsSource(i) && w.servers[i].source == w.primary {
			heard++
		}
	}
	p := &w.servers[w.primary]
	return heard >= max(1, w.n/2) && p.up && !p.readOnly && p.waitFor > 0
}

// findForbiddenBeginnings lists operations that a plan begins in spite of a requested stop.
func findForbiddenBeginnings(w *modelState, p Plan) []string {
	_, idle := p.Do.(Nothing)
	_, clones := p.Do.(CloneFrom)
	switch {
	case w.stop.reached && !idle:
		return []string{"acts although it is stopped"}
	case clones, p.Rule == "fence for a failover", p.Do == Action(SetReadOnly{Index: w.primary}) && w.primary != NoInstance:
		return []string{"begins an operation although a stop is requested"}
	default:
		return nil
	}
}

func (a *modelExplorer) failOn(s modelTrace, wrong []string) {
	a.t.Helper()
	if len(wrong) > 0 {
		a.t.Fatalf("%s\n%s\n%s", strings.Join(wrong, "\n"), strings.Join(s.steps, "\n"), s.describe())
	}
}

func (w *modelState) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "primary %d, stop asked %t, reached %+v, acknowledged %s\n", w.primary, w.stopAsked, w.stop, w.acked.toSet())
	for i := range w.n {
		s := w.servers[i]
		fmt.Fprintf(&b, "%d: executed %s waiting %s relay %s purged %s %+v\n", i, s.executed.toSet(), s.waiting.toSet(), s.relay.toSet(), s.purged.toSet(), s)
	}
	return b.String()
}

const maxPasses = 150

// runUntilQuiet runs undisturbed passes until the state no longer changes, and returns every state on the way. With
// lasting troubles this may never happen, because failed actions are retried.
func (a *modelExplorer) runUntilQuiet(s modelTrace) (way []modelTrace, ended bool) {
	way = []modelTrace{s}
	seen := map[modelState]int{}
	idle := 0
	a.conditions = nil
	for range maxPasses {
		before := s.withoutAges()
		var p Plan
		s, p = a.runPass(s, undisturbed(idle))
		a.conditions = append(a.conditions, [4]decision.Condition{p.Initialized, p.Available, p.Healthy, p.ClusteringActive})
		after := s.withoutAges()
		if before == after && p.Do == Action(Nothing{}) {
			if idle++; idle > 8 {
				return way, true
			}
			continue
		}
		idle = 0
		way = append(way, s)
		if seen[after]++; seen[after] > 3 {
			break
		}
	}
	return way, false
}

// checkHealing checks that a cluster becomes healthy once its troubles end, if a user wipes diverged instances.
func (a *modelExplorer) checkHealing(s modelTrace) {
	s = s.withStep("all troubles end")
	s.stopAsked = false
	for range 2 * s.n {
		s.endTroubles()
		way, ended := a.runUntilQuiet(s)
		s = way[len(way)-1]
		p := Decide(s.observe(nil))
		if !ended {
			a.failOn(s, []string{"expected an end, found none"})
		}
		a.failOn(s, findFlapping(a.conditions))
		if p.State == StateHealthy {
			a.failOn(s, findInequality(&s.modelState))
			return
		}
		if p.StartRefused && len(p.Errant) == 0 && !slices.ContainsFunc(p.Instances, func(r InstanceReport) bool { return !r.Ahead.IsEmpty() }) {
			s = s.withStep("a user forces the start")
			s.forced = true
			continue
		}
		patient := NoInstance
		for i, r := range p.Instances {
			if !r.Errant.IsEmpty() && !s.reclonesErrant || !r.Ahead.IsEmpty() || !r.Gap.IsEmpty() || p.State == StateFailed && s.heldTransactions(i)&s.rooted != 0 {
				patient = i
			}
		}
		if patient == NoInstance && (s.hasLostVolume() && (p.State == StateLost || p.State == StateFailed && s.hasRivals()) || s.primary == NoInstance && s.hasRivals()) {
			return // Only a user can choose: a volume or the status is lost, and the other instances lack transactions or diverge.
		}
		if patient == NoInstance {
			a.failOn(s, []string{fmt.Sprintf("expected a healthy end, found %s: %s", p.State, p.Healthy.Message)})
		}
		s = s.withStep(fmt.Sprintf("a user wipes %d", patient))
		s.loseVolume(patient)
	}
	a.failOn(s, []string{"expected a healthy end, found none"})
}

// hasRivals reports whether two instances are both writable, or each has a transaction that the other one lacks.
func (w *modelState) hasRivals() bool {
	for i := range w.n {
		for j := range w.n {
			open := i != j && !w.servers[i].readOnly && !w.servers[j].readOnly
			if open || !w.heldTransactions(i).contains(w.heldTransactions(j)) && !w.heldTransactions(j).contains(w.heldTransactions(i)) {
				return true
			}
		}
	}
	return false
}

// findFlapping lists conditions that return to an earlier message more than twice. Twice is allowed, because a cluster
// may be healthy before and after a switchover or a requested re-clone.
func findFlapping(said [][4]decision.Condition) []string {
	var wrong []string
	for kind := range 4 {
		entered := map[decision.Condition]int{}
		for i, all := range said {
			if i > 0 && all[kind] == said[i-1][kind] {
				continue
			}
			if entered[all[kind]]++; entered[all[kind]] > 3 {
				wrong = append(wrong, "repeats: "+all[kind].Message)
			}
		}
	}
	return wrong
}

// findInequality lists differences between the instances of a cluster that reports Healthy.
func findInequality(w *modelState) []string {
	var wrong []string
	p := &w.servers[w.primary]
	if lost := w.acked &^ p.executed; lost != 0 {
		wrong = append(wrong, "acknowledged transactions are lost: "+lost.toSet().String())
	}
	if p.source != NoInstance {
		wrong = append(wrong, "the primary has a channel")
	}
	for i := range w.n {
		if w.servers[i].executed != p.executed {
			wrong = append(wrong, fmt.Sprintf("instance %d differs from the primary", i))
		}
	}
	return wrong
}

// checkStop requests a stop in the current state, and checks that it is reached and leaves the primary writable.
func (a *modelExplorer) checkStop(s modelTrace) modelTrace {
	if s.stop.reached {
		return s
	}
	s = s.withStep("a stop is requested, with troubles as they are")
	s.stopAsked = true
	idle, passes := 0, 0
	for !s.stop.reached {
		before := s.withoutAges()
		s, _ = a.runPass(s, undisturbed(min(idle, 2)))
		if before == s.withoutAges() {
			idle++
		} else {
			idle = 0
		}
		if passes++; passes > maxPasses {
			a.failOn(s, []string{"expected the stop to be reached, found no end"})
		}
	}
	a.failOn(s, findHalfDone(&s.modelState))
	return s
}

// findHalfDone lists work that a reached stop could have finished and did not.
func findHalfDone(w *modelState) []string {
	if w.primary == NoInstance {
		return nil
	}
	var wrong []string
	p := &w.servers[w.primary]
	there := w.reachable(w.primary) && !p.alone
	if there && p.clone != Cloning && p.executed.contains(p.relay) && p.executed != 0 {
		if p.pending != (serverAction{}) {
			wrong = append(wrong, "the stop leaves a statement behind: "+p.pending.do)
		}
		if p.readOnly && !strings.Contains(w.stop.left, "lacks") {
			wrong = append(wrong, "the stop leaves the primary read-only")
		}
	}
	for i := range w.n {
		s := &w.servers[i]
		if i == w.primary || !w.reachable(i) || s.alone || s.ioErrno != 0 || s.sqlErrno != 0 || w.errant[i] {
			continue
		}
		fenced := s.source == w.primary && s.semiReplica && !s.io
		if fenced && !p.up {
			wrong = append(wrong, fmt.Sprintf("the stop leaves %d fenced", i))
		}
		strays := s.source != NoInstance && (s.source != w.primary || !s.io) || !s.readOnly
		if there && strays && w.stop.left == "" && p.executed != 0 && s.executed|s.relay != 0 && w.heldTransactions(i).contains(p.purged) {
			wrong = append(wrong, fmt.Sprintf("the stop does not mention %d, which does not follow", i))
		}
	}
	return wrong
}

// makeHealthy returns the states of a cluster between its creation and its first use.
func (a *modelExplorer) makeHealthy(n int) []modelTrace {
	way, _ := a.runUntilQuiet(modelTrace{modelState: newModelState(n)})
	s := way[len(way)-1]
	s.clientWrites(s.primary)
	more, _ := a.runUntilQuiet(s.withStep("a client writes"))
	return append(way, more...)
}

func TestNewClusterBecomesHealthy(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		a := newModelExplorer(t)
		way := a.makeHealthy(n)
		end := way[len(way)-1]
		p := Decide(end.observe(nil))
		if p.State != StateHealthy || p.Synced != n-1 || end.acked == 0 {
			t.Errorf("of %d: expected a healthy cluster that acknowledges, found %s, %d in sync, %s", n, p.State, p.Synced, p.Healthy.Message)
		}
		for i := range n {
			want := RoleReplica
			if i == end.primary {
				want = RolePrimary
			}
			if diff := cmp.Diff(want, end.servers[i].role); diff != "" {
				t.Errorf("of %d: role of %d: %s", n, i, diff)
			}
		}
	}
}

// TestClusterHealsAndStopsAfterAnyTwoTroubles causes one or two troubles at every moment in the life of a cluster.
func TestClusterHealsAndStopsAfterAnyTwoTroubles(t *testing.T) {
	a := newModelExplorer(t)
	seen := map[modelState]bool{}
	level := a.filterUnseen(seen, a.makeHealthy(3))
	for depth, every := range []int{1, 67} {
		var next []modelTrace
		count := 0
		for _, s := range level {
			for _, e := range eventsOfCluster(3) {
				if count++; count%every == 0 {
					next = append(next, a.filterUnseen(seen, a.applyTwice(s, e))...)
				}
			}
			for _, f := range badOutcomes() {
				if count++; count%every == 0 {
					d, _ := a.runPass(s, passDisturbance{outcome: f})
					way, _ := a.runUntilQuiet(d)
					next = append(next, a.filterUnseen(seen, way)...)
				}
			}
		}
		level = next
		for i, s := range level {
			if depth == 0 || i%10 == 0 {
				a.checkStop(s)
				a.checkHealing(s)
			}
		}
		t.Logf("%d troubles: %d new states, %d steps", depth+1, len(level), a.steps)
	}
}

// TestAGrowingClusterLosesNoCommit adds instances to a cluster in use, some of which are cut off for a while. At every
// moment, a client writes a transaction that only one replica receives. Immediately, or one or two passes later, the
// primary and that replica crash. The test checks the invariant of failover.go.
func TestAGrowingClusterLosesNoCommit(t *testing.T) {
	t.Parallel()
	for n, cuts := range map[int]int{1: 1, 3: 2} {
		a := newModelExplorer(t)
		healthy := a.makeHealthy(n)
		grown := healthy[len(healthy)-1].withStep("two instances are added")
		grown.addInstances(2)
		way, _ := a.runUntilQuiet(grown)
		if end := way[len(way)-1]; end.guaranteed != end.n/2 {
			t.Errorf("of %d: expected %d replicas to have every commit in the end, found %d", n, end.n/2, end.guaranteed)
		}
		moments := map[modelState]bool{}
		for _, s := range way {
			for cut := range instanceSet(1) << s.n {
				if bits.OnesCount(uint(cut)) != cuts || cut.has(s.primary) {
					continue
				}
				d := s.withStep(fmt.Sprintf("the others lose %b", cut))
				for i := range d.n {
					d.servers[i].cutPeers = cut.has(i)
				}
				after, _ := a.runUntilQuiet(d)
				for _, moment := range after {
					if still := moment.withoutAges(); !moments[still] {
						moments[still] = true
						a.loseNewestCommit(moment)
					}
				}
			}
		}
		t.Logf("from %d: %d moments, %d steps", n, len(moments), a.steps)
	}
}

// loseNewestCommit writes a transaction that at most one replica receives. That replica and the primary crash
// immediately, or after one or two passes.
func (a *modelExplorer) loseNewestCommit(s modelTrace) {
	for holder := range s.n {
		if isHolder := holder == s.primary || s.hearsSource(holder); !isHolder {
			continue
		}
		others := ^instanceSet(1 << holder)
		d := s.withStep(fmt.Sprintf("a client writes what only %d receives", holder))
		d.clientWrites(d.primary)
		d.advance(others)
		for range 3 {
			lost := d.withStep(fmt.Sprintf("%d and the primary crash", holder))
			lost.crashServer(lost.primary)
			lost.crashServer(holder)
			for i := range lost.n {
				lost.servers[i].cutPeers = false
			}
			a.runUntilQuiet(lost)
			d, _ = a.runPass(d, passDisturbance{outcome: succeeds, stalled: others})
		}
	}
}

// filterUnseen returns the states that have not been visited before.
func (a *modelExplorer) filterUnseen(seen map[modelState]bool, way []modelTrace) []modelTrace {
	var list []modelTrace
	for _, s := range way {
		if !seen[s.modelState] {
			seen[s.modelState] = true
			list = append(list, s)
		}
	}
	return list
}

// applyTwice applies an event between two passes, and once more between the observation and the action of a pass.
func (a *modelExplorer) applyTwice(s modelTrace, e modelEvent) []modelTrace {
	var all []modelTrace
	d := s.withStep(e.name)
	if e.apply(&d.modelState) {
		all, _ = a.runUntilQuiet(d)
	}
	d, _ = a.runPass(s, passDisturbance{between: e, outcome: succeeds})
	way, _ := a.runUntilQuiet(d)
	return append(all, way...)
}

var walkFactor = flag.Int("longer", 1, "how much longer the random walks of the model take")

// TestClusterHealsAfterRandomTroubles runs random sequences of troubles, to find sequences that the exhaustive tests do
// not cover.
func TestClusterHealsAfterRandomTroubles(t *testing.T) {
	for n, walks := range map[int]int{1: 50, 3: 400, 5: 150} {
		a := newModelExplorer(t)
		for seed := range walks * *walkFactor {
			a.walkRandomly(n, uint64(seed))
		}
		t.Logf("of %d: %d walks, %d steps", n, walks**walkFactor, a.steps)
	}
}

func (a *modelExplorer) walkRandomly(n int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	s := modelTrace{modelState: newModelState(n), steps: []string{fmt.Sprintf("seed %d of %d", seed, n)}}
	if rng.IntN(4) > 0 {
		way := a.makeHealthy(n)
		s = way[len(way)-1].withStep(fmt.Sprintf("seed %d of %d", seed, n))
	}
	if rng.IntN(2) == 0 && s.primary != NoInstance {
		s = tearReplicas(rng, s)
	}
	list, ends := pickFew(rng, eventsOfCluster(n)), pickFew(rng, badOutcomes())
	if n < maxInstances && rng.IntN(3) == 0 {
		list = append(pickFew(rng, eventsOfCluster(n+2)), growthEvent())
	}
	for range 40 {
		t := passDisturbance{outcome: succeeds, idle: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			t.stalled = instanceSet(rng.IntN(1 << s.n))
		}
		e := list[rng.IntN(len(list))]
		if rng.IntN(3) == 0 {
			e = clientWriteEvent(rng.IntN(s.n))
		}
		switch rng.IntN(8) {
		case 0, 1:
			if d := s.withStep(e.name); e.apply(&d.modelState) {
				s = d
			}
		case 2:
			t.between = e
		case 3:
			t.during = e
		case 4:
			t.outcome = ends[rng.IntN(len(ends))]
		}
		s, _ = a.runPass(s, t)
		if rng.IntN(20) == 0 {
			a.checkStop(s)
		}
		if rng.IntN(20) == 0 {
			a.checkHealing(s)
		}
	}
	a.checkHealing(s)
}

// tearReplicas makes the replicas differ: each has received and applied a part of the primary's transactions, and a
// part of them is acknowledged. Then the primary may disappear, or a switchover may be requested.
func tearReplicas(rng *rand.Rand, s modelTrace) modelTrace {
	s = s.withStep("replicas are torn")
	for range 4 {
		s.clientWrites(s.primary)
		for range 3 {
			i := rng.IntN(s.n)
			s.servers[i].slow = rng.IntN(2) == 0
			s.advance(instanceSet(rng.IntN(1 << s.n)))
		}
	}
	primary := &s.servers[s.primary]
	switch rng.IntN(5) {
	case 0:
		s.crashServer(s.primary)
		s = s.withStep("the primary crashes")
	case 1:
		primary.cutManager = true
		s = s.withStep("the manager loses the primary")
	case 2:
		primary.cutManager, primary.cutPeers = true, true
		s = s.withStep("the manager and the replicas lose the primary")
	case 3:
		primary.demote = true
		s = s.withStep("the primary is asked to step down")
	}
	return s
}

// pickFew picks a few troubles. With too many troubles at once, one would hide another.
func pickFew[T any](rng *rand.Rand, all []T) []T {
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+rng.IntN(min(len(all), 8))]
}

var (
	errUnreachable = errors.New("no answer")
	errBusy        = errors.New("a statement still runs")
	errConflict    = errors.New("the status has changed")
	errRefused     = errors.New("refused")
)

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

type passDisturbance struct {
	// during happens between the observations of the replicas and of the primary. between happens between the
	// observation and the action.
	during, between modelEvent
	outcome         actionOutcome
	// stalled servers neither receive nor apply.
	stalled instanceSet
	// idle is the number of passes without a change. With many idle passes, the clock advances in larger steps.
	idle int
}

func undisturbed(idle int) passDisturbance { return passDisturbance{outcome: succeeds, idle: idle} }

// runPass is one pass of the manager, followed by progress of the servers. The pass observes, acts and saves the
// status; events may happen in between.
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
		w.saveStatus(p, o)
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

func (w *modelState) saveStatus(p Plan, o Observed) {
	for i, r := range p.Instances {
		if !r.Discarded.IsEmpty() && !o.Instances[i].Discarded.Contains(r.Discarded) {
			w.discarded[i] |= w.servers[i].executed // The list contains at least the transactions that only this instance has.
		}
	}
	switch {
	case p.Stop == nil:
		w.stop, w.forced = modelStop{}, false
	case !w.stop.reached:
		w.stop = modelStop{reached: true, since: 1, left: p.Stop.Unfinished}
	}
	if w.guaranteed = unknownAcks; p.GuaranteedAcks != nil {
		w.guaranteed = *p.GuaranteedAcks
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
			s.busy = false
		}
		s.role = do.Role
	case ClearDemote:
		w.servers[do.Index].demote = false
	case ClearReclone:
		w.servers[do.Index].reclone = false
	case DiscardData, Nothing, EndStop, RemoveLeftovers, SetReadOnly, MakeWritable, KillConnections, CancelPending, StopIO, StartIO, RestartSQL, ConfigurePrimary, ConfigureReplica, CloneFrom, RestoreDurability, RenewAccounts:
		return w.sendAll(do, f)
	case PrepareRotation, RetainPasswords, PromotePasswords, DiscardPasswords, EndRotation, RenewChannel, ReloadCertificate,
		FinishCopy, FollowOutside, TakeOverAccounts, SetProtection: // The model has no passwords and no lag.
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
			wrong = append(wrong, fmt.Sprintf("the primary lacks acknowledged transactions: %s", lost.toSet()))
		}
	}
	return wrong
}

// findForgottenTransactions lists acknowledged transactions that an action removed from an instance.
func findForgottenTransactions(before, after *modelState, do Action) []string {
	var wrong []string
	if discard, ok := do.(DiscardData); ok {
		if unnamed := before.heldTransactions(discard.Index) &^ before.heldTransactions(before.primary) &^ before.discarded[discard.Index]; unnamed != 0 {
			wrong = append(wrong, fmt.Sprintf("instance %d discards %s, which the status does not list", discard.Index, unnamed.toSet()))
		}
		return wrong
	}
	for i := range before.n {
		if before.servers[i].pending.do == "DiscardData" {
			continue
		}
		if lost := before.heldTransactions(i) & before.acked &^ after.heldTransactions(i); lost != 0 && before.servers[i].wiped == after.servers[i].wiped {
			wrong = append(wrong, fmt.Sprintf("instance %d loses %s", i, lost.toSet()))
		}
	}
	return wrong
}

// withoutAges returns the state without its ages, which change even if nothing else does.
func (w *modelState) withoutAges() modelState {
	s := *w
	s.history, s.stop.since = modelHistory{}, never
	for i := range s.n {
		s.servers[i].pendingFor = never
	}
	return s
}

// mayLoseVolume reports whether the other instances have every acknowledged transaction and no volume was lost earlier,
// so a majority survives.
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

// endTroubles ends all troubles except those that only a user can fix.
func (w *modelState) endTroubles() {
	for i := range w.n {
		s := &w.servers[i]
		if s.terminating {
			w.removePod(i)
		}
		s.frozen, s.refuses = false, false
		s.cutManager, s.cutPeers, s.slow, s.busy, s.alone, s.sqlErrno = false, false, false, false, false, 0
		w.startServer(i)
	}
}

// modelEvent is an event that happens between two steps.
type modelEvent struct {
	name  string
	apply func(*modelState) bool
}

// applyTo applies the event; an empty event does nothing.
func (e modelEvent) applyTo(w *modelState) {
	if e.apply != nil {
		e.apply(w)
	}
}

// eventsOfCluster returns the events that can happen to a cluster of n instances. Applying an event that is impossible
// in the current state returns false.
func eventsOfCluster(n int) []modelEvent {
	list := []modelEvent{
		{"the manager is killed", func(w *modelState) bool { w.history = modelHistory{}; return true }},
		{"a stop is requested", func(w *modelState) bool { was := w.stopAsked; w.stopAsked = true; return !was }},
		{"a start is requested", func(w *modelState) bool { was := w.stopAsked; w.stopAsked = false; return was }},
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
				w.primary, w.guaranteed, w.stop, w.errant = NoInstance, unknownAcks, modelStop{}, [maxInstances]bool{}
			}
			return happens
		}},
		growthEvent(),
		{"re-clones of errant replicas are requested", func(w *modelState) bool { was := w.reclonesErrant; w.reclonesErrant = true; return !was }},
		{"twenty seconds pass", func(w *modelState) bool { w.passTime(20 * time.Second); return true }},
	}
	for i := range n {
		list = append(list, eventsOfInstance(i)...)
	}
	return list
}

func growthEvent() modelEvent {
	return modelEvent{"two instances are added", func(w *modelState) bool {
		happens := w.n+2 <= maxInstances
		if happens {
			w.addInstances(2)
		}
		return happens
	}}
}

func clientWriteEvent(i int) modelEvent {
	return modelEvent{fmt.Sprintf("a client writes to %d", i), func(w *modelState) bool { before := *w; w.clientWrites(i); return before != *w }}
}

func eventsOfInstance(i int) []modelEvent {
	toggle := func(what string, field func(*modelServer) *bool) modelEvent {
		return modelEvent{fmt.Sprintf("%s %d", what, i), func(w *modelState) bool { b := field(&w.servers[i]); *b = !*b; return true }}
	}
	list := []modelEvent{
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
		{fmt.Sprintf("pod %d is asked to step down", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.exists && !s.demote && i == w.primary
			s.demote = s.demote || happens
			return happens
		}},
		toggle("the manager loses or finds", func(s *modelServer) *bool { return &s.cutManager }),
		toggle("refused or not is the manager at", func(s *modelServer) *bool { return &s.refuses }),
		toggle("frozen or not is", func(s *modelServer) *bool { return &s.frozen }),
		toggle("the others lose or find", func(s *modelServer) *bool { return &s.cutPeers }),
		{fmt.Sprintf("the manager and the others lose %d", i), func(w *modelState) bool {
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
		{fmt.Sprintf("a user stops the SQL thread of %d", i), func(w *modelState) bool { s := &w.servers[i]; was := s.sql; s.sql = false; return was }},
		{fmt.Sprintf("a user stops the IO thread of %d", i), func(w *modelState) bool { s := &w.servers[i]; was := s.io; s.io = false; return was }},
		{fmt.Sprintf("a user makes %d read-only", i), func(w *modelState) bool {
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
		{fmt.Sprintf("a user requests a re-clone of %d", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.exists && !s.reclone && w.rooted == 0
			s.reclone = s.reclone || happens
			return happens
		}},
		{fmt.Sprintf("a user grants privileges in %d while no replica is connected", i), func(w *modelState) bool {
			s, before := &w.servers[i], *w
			if s.up && s.awaitsReplicas() && w.countAcknowledgers(i) == 0 {
				w.clientWrites(i)
				s.granting = s.waiting != 0
			}
			return before != *w
		}},
		{fmt.Sprintf("a client locks %d", i), func(w *modelState) bool {
			s := &w.servers[i]
			happens := s.up && !s.readOnly && !s.busy
			s.busy = s.busy || happens
			return happens
		}},
	}
	for at, e := range list {
		list[at].apply = func(w *modelState) bool { return i < w.n && e.apply(w) }
	}
	return list
}
