// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// story is a world and how it came about.
type story struct {
	world
	told []string
}

func (s story) then(what string) story {
	return story{s.world, append(slices.Clip(s.told), what)}
}

// atlas explores worlds.
type atlas struct {
	t     *testing.T
	steps int
	// said are the conditions of the last way that was followed.
	said [][4]Condition
}

func newAtlas(t *testing.T) *atlas {
	t.Helper()
	return &atlas{t: t}
}

// pass runs one pass of a story and judges it.
func (a *atlas) pass(s story, t turn) (story, Plan) {
	a.steps++
	before := s.world
	next := before
	p := next.pass(t)
	s.world = next
	line := fmt.Sprintf("%s: %T%v", p.Rule, p.Do, p.Do)
	for when, e := range map[string]event{"during the look": t.during, "before the act": t.between} {
		if e.happens != nil {
			line += fmt.Sprintf(", %s %s", when, e.name)
		}
	}
	if t.fate != done {
		line += ", but " + string(t.fate)
	}
	s = s.then(line)
	wrong := append(next.unsafe(), dropped(&before, &next)...)
	if before.stopAsked {
		wrong = append(wrong, begun(&before, p)...)
	}
	a.report(s, wrong)
	return s, p
}

// begun says what a plan begins although a stop is asked for.
func begun(w *world, p Plan) []string {
	_, idle := p.Do.(Nothing)
	_, clones := p.Do.(CloneFrom)
	switch {
	case w.stop.reached && !idle:
		return []string{"acts although it is stopped"}
	case clones, p.Rule == "fence for a failover", p.Do == Action(SetReadOnly{Index: w.primary}) && w.primary != None:
		return []string{"begins something although a stop is asked for"}
	default:
		return nil
	}
}

func (a *atlas) report(s story, wrong []string) {
	a.t.Helper()
	if len(wrong) > 0 {
		a.t.Fatalf("%s\n%s\n%s", strings.Join(wrong, "\n"), strings.Join(s.told, "\n"), s.show())
	}
}

func (w *world) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "primary %d, stop asked %t, reached %+v, acknowledged %s\n", w.primary, w.stopAsked, w.stop, w.acked.set())
	for i := range w.n {
		s := w.servers[i]
		fmt.Fprintf(&b, "%d: executed %s waiting %s relay %s purged %s %+v\n", i, s.executed.set(), s.waiting.set(), s.relay.set(), s.purged.set(), s)
	}
	return b.String()
}

const patience = 150

// follow runs undisturbed passes until nothing changes any more, and returns every world on the way. With troubles that
// last there may be no end, since what fails is tried again.
func (a *atlas) follow(s story) (way []story, ended bool) {
	way = []story{s}
	seen := map[world]int{}
	idle := 0
	a.said = nil
	for range patience {
		before := s.still()
		var p Plan
		s, p = a.pass(s, calm(idle))
		a.said = append(a.said, [4]Condition{p.Initialized, p.Available, p.Healthy, p.ClusteringActive})
		after := s.still()
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

// heals checks that a world becomes healthy once its troubles end, with a human who wipes what is errant.
func (a *atlas) heals(s story) {
	s = s.then("all troubles end")
	s.stopAsked = false
	for range 2 * s.n {
		s.heal()
		way, ended := a.follow(s)
		s = way[len(way)-1]
		p := Decide(s.observe(nil))
		if !ended {
			a.report(s, []string{"expected an end, found none"})
		}
		a.report(s, flapping(a.said))
		if p.State == StateHealthy {
			a.report(s, unequal(&s.world))
			return
		}
		patient := None
		for i, r := range p.Instances {
			if !r.Errant.Empty() || !r.Ahead.Empty() || !r.Gap.Empty() || p.State == StateFailed && s.held(i)&s.rooted != 0 {
				patient = i
			}
		}
		if patient == None && (s.anyWiped() && (p.State == StateLost || p.State == StateFailed && s.rival()) || s.primary == None && s.rival()) {
			return // A human chooses: a volume or the status is lost, and the others know too little or contradict each other.
		}
		if patient == None {
			a.report(s, []string{fmt.Sprintf("expected a healthy end, found %s: %s", p.State, p.Healthy.Message)})
		}
		s = s.then(fmt.Sprintf("somebody wipes %d", patient))
		s.wipe(patient)
	}
	a.report(s, []string{"expected a healthy end, found none"})
}

// rival: of two instances each can be written to, or has something that the other has not.
func (w *world) rival() bool {
	for i := range w.n {
		for j := range w.n {
			open := i != j && !w.servers[i].readOnly && !w.servers[j].readOnly
			if open || !w.held(i).has(w.held(j)) && !w.held(j).has(w.held(i)) {
				return true
			}
		}
	}
	return false
}

// flapping says which conditions come back again and again to what they have said before. Once is no flapping: what was
// well before a switchover is well after it.
func flapping(said [][4]Condition) []string {
	var wrong []string
	for kind := range 4 {
		entered := map[Condition]int{}
		for i, all := range said {
			if i > 0 && all[kind] == said[i-1][kind] {
				continue
			}
			if entered[all[kind]]++; entered[all[kind]] > 2 {
				wrong = append(wrong, "says again: "+all[kind].Message)
			}
		}
	}
	return wrong
}

// unequal says how a cluster that calls itself healthy is not.
func unequal(w *world) []string {
	var wrong []string
	p := &w.servers[w.primary]
	if lost := w.acked &^ p.executed; lost != 0 {
		wrong = append(wrong, "what was acknowledged is lost: "+lost.set().String())
	}
	if p.source != None {
		wrong = append(wrong, "the primary has a channel")
	}
	for i := range w.n {
		if w.servers[i].executed != p.executed {
			wrong = append(wrong, fmt.Sprintf("instance %d differs from the primary", i))
		}
	}
	return wrong
}

// quiets checks that a stop, asked for now, is reached and leaves the primary writable.
func (a *atlas) quiets(s story) story {
	if s.stop.reached {
		return s
	}
	s = s.then("a stop is asked for, with troubles as they are")
	s.stopAsked = true
	idle, passes := 0, 0
	for !s.stop.reached {
		before := s.still()
		s, _ = a.pass(s, calm(min(idle, 2)))
		if before == s.still() {
			idle++
		} else {
			idle = 0
		}
		if passes++; passes > patience {
			a.report(s, []string{"expected the stop to be reached, found no end"})
		}
	}
	a.report(s, halfDone(&s.world))
	return s
}

// halfDone says what a stop that was reached left half done without need.
func halfDone(w *world) []string {
	if w.primary == None {
		return nil
	}
	var wrong []string
	p := &w.servers[w.primary]
	there := w.reachable(w.primary) && !p.alone
	if there && p.clone != Cloning && p.executed.has(p.relay) && p.executed != 0 {
		if p.pending != (toyAct{}) {
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
		strays := s.source != None && (s.source != w.primary || !s.io) || !s.readOnly
		if there && strays && w.stop.left == "" && p.executed != 0 && s.executed|s.relay != 0 && w.held(i).has(p.purged) {
			wrong = append(wrong, fmt.Sprintf("the stop says nothing of %d, which does not follow", i))
		}
	}
	return wrong
}

// healthy is a cluster from its beginning until it is in use.
func (a *atlas) healthy(n int) []story {
	way, _ := a.follow(story{world: fresh(n)})
	s := way[len(way)-1]
	s.write(s.primary)
	more, _ := a.follow(s.then("a client writes"))
	return append(way, more...)
}

func TestNewClusterBecomesHealthy(t *testing.T) {
	for _, n := range []int{1, 3, 5} {
		a := newAtlas(t)
		way := a.healthy(n)
		end := way[len(way)-1]
		p := Decide(end.observe(nil))
		if p.State != StateHealthy || p.Synced != n-1 || end.acked == 0 {
			t.Errorf("of %d: expected a healthy cluster that acknowledges, found %s, %d in sync, %s", n, p.State, p.Synced, p.Healthy.Message)
		}
		for i := range n {
			want := Replica
			if i == end.primary {
				want = Primary
			}
			if diff := cmp.Diff(want, end.servers[i].role); diff != "" {
				t.Errorf("of %d: role of %d: %s", n, i, diff)
			}
		}
	}
}

// One or two troubles at every moment of a cluster's life, and what becomes of it: it heals, and can be stopped.
func TestAnyTwoTroublesAtAnyMoment(t *testing.T) {
	a := newAtlas(t)
	seen := map[world]bool{}
	level := a.unseen(seen, a.healthy(3))
	for depth, every := range []int{1, 67} {
		var next []story
		count := 0
		for _, s := range level {
			for _, e := range events(3) {
				if count++; count%every == 0 {
					next = append(next, a.unseen(seen, a.twice(s, e))...)
				}
			}
			for _, f := range fates() {
				if count++; count%every == 0 {
					d, _ := a.pass(s, turn{fate: f})
					way, _ := a.follow(d)
					next = append(next, a.unseen(seen, way)...)
				}
			}
		}
		level = next
		for i, s := range level {
			if depth == 0 || i%10 == 0 {
				a.quiets(s)
				a.heals(s)
			}
		}
		t.Logf("%d troubles: %d new worlds, %d steps", depth+1, len(level), a.steps)
	}
}

// unseen are the worlds of a way that were not on another.
func (a *atlas) unseen(seen map[world]bool, way []story) []story {
	var list []story
	for _, s := range way {
		if !seen[s.world] {
			seen[s.world] = true
			list = append(list, s)
		}
	}
	return list
}

// twice lets something happen between two passes, and again between the look and the act.
func (a *atlas) twice(s story, e event) []story {
	var all []story
	d := s.then(e.name)
	if e.happens(&d.world) {
		all, _ = a.follow(d)
	}
	d, _ = a.pass(s, turn{between: e, fate: done})
	way, _ := a.follow(d)
	return append(all, way...)
}

var longer = flag.Int("longer", 1, "how much longer the random walks of the model take")

// Chance finds what nobody thought of.
func TestRandomTroubles(t *testing.T) {
	for n, walks := range map[int]int{1: 50, 3: 400, 5: 150} {
		a := newAtlas(t)
		for seed := range walks * *longer {
			a.walk(n, uint64(seed))
		}
		t.Logf("of %d: %d walks, %d steps", n, walks**longer, a.steps)
	}
}

func (a *atlas) walk(n int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	s := story{world: fresh(n), told: []string{fmt.Sprintf("seed %d of %d", seed, n)}}
	if rng.IntN(4) > 0 {
		way := a.healthy(n)
		s = way[len(way)-1].then(fmt.Sprintf("seed %d of %d", seed, n))
	}
	if rng.IntN(2) == 0 && s.primary != None {
		s = tear(rng, s)
	}
	list, ends := swarm(rng, events(n)), swarm(rng, fates())
	for range 40 {
		t := turn{fate: done, idle: rng.IntN(3)}
		if rng.IntN(2) == 0 {
			t.stalled = instances(rng.IntN(1 << n))
		}
		e := list[rng.IntN(len(list))]
		if rng.IntN(3) == 0 {
			e = writes(rng.IntN(n))
		}
		switch rng.IntN(8) {
		case 0, 1:
			if d := s.then(e.name); e.happens(&d.world) {
				s = d
			}
		case 2:
			t.between = e
		case 3:
			t.during = e
		case 4:
			t.fate = ends[rng.IntN(len(ends))]
		}
		s, _ = a.pass(s, t)
		if rng.IntN(20) == 0 {
			a.quiets(s)
		}
		if rng.IntN(20) == 0 {
			a.heals(s)
		}
	}
	a.heals(s)
}

// tear makes the replicas differ: each has received and applied a part of what the primary wrote, of which a part is
// acknowledged. Then the primary may disappear, or is told to step down.
func tear(rng *rand.Rand, s story) story {
	s = s.then("replicas are torn")
	for range 4 {
		s.write(s.primary)
		for range 3 {
			i := rng.IntN(s.n)
			s.servers[i].slow = rng.IntN(2) == 0
			s.progress(instances(rng.IntN(1 << s.n)))
		}
	}
	primary := &s.servers[s.primary]
	switch rng.IntN(5) {
	case 0:
		s.crash(s.primary)
		s = s.then("the primary crashes")
	case 1:
		primary.cutManager = true
		s = s.then("the manager loses the primary")
	case 2:
		primary.cutManager, primary.cutPeers = true, true
		s = s.then("everybody loses the primary")
	case 3:
		primary.demote = true
		s = s.then("the primary is told to step down")
	}
	return s
}

// swarm picks a few: troubles that are drowned in others find nothing.
func swarm[T any](rng *rand.Rand, all []T) []T {
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+rng.IntN(min(len(all), 8))]
}
