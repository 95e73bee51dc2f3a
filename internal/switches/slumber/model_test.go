// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	sequences     = 150
	soakSequences = 10_000 // 132 s of CPU time.
	steps         = 20
	// modelSpread is spec.spreadOver in the model. It is shorter than the time for which settle runs.
	modelSpread = 5 * time.Second
	// shards is the number of parallel subtests.
	shards = 4
	// noWave is the wave of a member that no wave selects.
	noWave = "none"
)

// fleet is a Slumber, or a ClusterSlumber, with three waves of members of all kinds, whose controllers act with
// random delays, and users who act at random.
type fleet struct {
	t       testing.TB
	random  *rand.Rand
	now     time.Time
	slumber *torporv1alpha1.Slumber
	// seen is the Slumber as it is in its controller's cache.
	seen    *torporv1alpha1.Slumber
	members []*modelMember
	// startedAt is the time at which the manager started; isAway is true while no manager runs. Kinds that are stopped
	// by setting fields are announced some time after the start.
	startedAt            time.Time
	isAway, hasWorkloads bool
	// isGoing is true while the Slumber is being deleted and its finalizer has not finished.
	isGoing                 bool
	history                 []string
	edits                   int
	areRequestersNoted      bool
	lastPlan                slumber.Plan
	isPlanOfTheSavedSlumber bool
	// reach is the reach of a ClusterSlumber; nil for a Slumber.
	reach *slumber.Reach
}

// modelNamespace is the namespace of all members. With a ClusterSlumber, it also has a Slumber that selects members
// with the label "own".
const modelNamespace = "team"

// newModelReach returns the reach of a ClusterSlumber that selects the namespace of the members.
func newModelReach(t testing.TB, kinds []memberKind) *slumber.Reach {
	t.Helper()
	own := threeWaves(kinds)
	own.Namespace = modelNamespace
	for i := range own.Spec.Waves {
		for j := range own.Spec.Waves[i].Targets {
			own.Spec.Waves[i].Targets[j].Selector.MatchLabels = map[string]string{"own": "yes"}
		}
	}
	another := own.DeepCopy()
	another.Namespace = "another"
	another.Spec.Waves[0].Targets[0].Selector = metav1.LabelSelector{}
	reach, err := slumber.NewReach(&torporv1alpha1.ClusterSlumber{}, []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: modelNamespace}}}, []torporv1alpha1.Slumber{*own, *another})
	if err != nil {
		t.Fatal(err)
	}
	return reach
}

// waveOf returns the wave that selects a member with the labels of the given state; -1 if none does.
func (f *fleet) waveOf(m *modelMember, state kinds.Object) int {
	wave, err := f.reach.FindWave(f.slumber, m.GVK().GroupKind(), state)
	if err != nil {
		f.t.Fatal(err)
	}
	return wave
}

// threeWaves returns a Slumber whose waves select members of every kind by their label.
func threeWaves(kinds []memberKind) *torporv1alpha1.Slumber {
	s := &torporv1alpha1.Slumber{Spec: specOf("UTC", "0 20 * * *", "0 7 * * *")}
	s.Name, s.Generation = "nights", 1
	for _, name := range []string{"first", "second", "third"} {
		wave := torporv1alpha1.SlumberWave{Name: name}
		for _, kind := range kinds {
			wave.Targets = append(wave.Targets, torporv1alpha1.SlumberTarget{
				APIGroup: kind.GVK().Group, Kind: kind.GVK().Kind, Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": name}},
			})
		}
		s.Spec.Waves = append(s.Spec.Waves, wave)
	}
	return s
}

func newFleet(t testing.TB, kinds []memberKind, random *rand.Rand) *fleet {
	t.Helper()
	now := time.Date(2026, 11, 24, random.IntN(24), random.IntN(60), 0, 0, time.UTC)
	f := &fleet{t: t, random: random, now: now, startedAt: now.Add(-time.Hour), hasWorkloads: true, slumber: threeWaves(kinds), areRequestersNoted: random.IntN(2) == 0}
	for i, kind := range kinds {
		m := &modelMember{memberKind: kind, t: t, draw: random.IntN}
		kind.build(m)
		m.stored.SetName(fmt.Sprint("m", i))
		m.stored.SetNamespace(modelNamespace)
		m.stored.SetUID(uidOf(random.IntN(1000)))
		m.stored.SetLabels(map[string]string{"wave": f.slumber.Spec.Waves[random.IntN(3)].Name})
		m.sync()
		kind.control(m, now)
		kind.finish(m, now)
		m.sync()
		f.members = append(f.members, m)
	}
	if random.IntN(2) == 0 {
		f.reach, f.slumber.Name = newModelReach(t, kinds), torporv1alpha1.ClusterSlumberPrefix+f.slumber.Name
	}
	if random.IntN(2) == 0 {
		f.slumber.Spec.SpreadOver = &metav1.Duration{Duration: modelSpread}
	}
	f.seen = f.slumber
	return f
}

func (f *fleet) fail(format string, args ...any) {
	f.t.Helper()
	f.t.Fatalf(format+"\n%s", append(args, strings.Join(f.history, "\n"))...)
}

// tick advances the clock by a fraction of a second, because times of the API have whole seconds and those of a
// clock do not.
func (f *fleet) tick() {
	f.now = f.now.Add(2*time.Second + time.Duration(f.random.IntN(1_000_000_000)))
}

// isManaged reports whether the controller of a member runs.
func (f *fleet) isManaged(m *modelMember) bool {
	return !f.isAway && (m.Switch() == nil || f.hasWorkloads)
}

// observe returns what the Slumber's controller reads from its caches.
func (f *fleet) observe() (seen slumber.Observed, waves [][]*modelMember, leftovers []*modelMember) {
	seen = slumber.Observed{Now: f.now, Slumber: f.seen, Waves: make([][]slumber.Member, len(f.seen.Spec.Waves))}
	waves = make([][]*modelMember, len(f.seen.Spec.Waves))
	for _, m := range f.members {
		if m.Switch() != nil && !f.hasWorkloads {
			seen.MissingKinds = append(seen.MissingKinds, m.GVK().GroupKind().String())
			continue
		}
		wave := f.waveOf(m, m.cached)
		member := slumber.ReadMember(f.seen.Name, m.Kind, m.cached, f.now)
		switch {
		case wave >= 0 && member.IsStoppable:
			seen.Waves[wave], waves[wave] = append(seen.Waves[wave], member), append(waves[wave], m)
		case member.IsStopped:
			seen.Leftovers, leftovers = append(seen.Leftovers, member), append(leftovers, m)
		}
	}
	slices.Sort(seen.MissingKinds)
	seen.KindsAwaitedUntil = f.startedAt.Add(slumber.KindsGrace)
	return seen, waves, leftovers
}

// passEnd is how a pass of the Slumber ends.
type passEnd int

const (
	// With completes, everything is saved; with fails, some writes to the API server are lost; with dies, the
	// manager is killed at some point before the status is saved.
	completes passEnd = iota
	fails
	dies
)

// pass runs one pass of the Slumber's controller.
func (f *fleet) pass(end passEnd) {
	if f.isAway {
		return
	}
	if f.isGoing {
		f.removeSlumber()
		return
	}
	observed, waves, leftovers := f.observe()
	plan := slumber.Decide(observed)
	f.lastPlan, f.isPlanOfTheSavedSlumber = plan, f.seen == f.slumber
	for i, wishes := range plan.Wishes {
		for j, wish := range wishes {
			if !f.write(waves[i][j], observed.Waves[i][j], plan, i, wish, end) {
				f.kill()
				return
			}
		}
	}
	if plan.Wishes != nil {
		for i, m := range leftovers {
			if !f.write(m, observed.Leftovers[i], plan, -1, slumber.MemberWish{Verb: slumber.Start}, end) {
				f.kill()
				return
			}
		}
	}
	if end == dies {
		f.kill()
		return
	}
	if f.seen == f.slumber { // Otherwise the Slumber was changed after the pass read it, and the status write meets a conflict.
		saved := f.slumber.DeepCopy()
		saved.Status = truncateTimes(plan.Status)
		f.slumber = saved
	}
	f.seen = f.slumber
}

// write writes the planned stops of a member. It returns false if the manager is killed before the write.
func (f *fleet) write(m *modelMember, seen slumber.Member, plan slumber.Plan, wave int, wish slumber.MemberWish, end passEnd) bool {
	next := plan.NextStops(f.seen, seen, wave, wish, f.now)
	before := seen.FindStops(f.seen.Name)
	if equality.Semantic.DeepEqual(next, before) {
		return true
	}
	if end == dies && f.random.IntN(3) == 0 {
		return false
	}
	if end == fails && f.random.IntN(2) == 0 {
		return true
	}
	holds := func(stop torporv1alpha1.ScheduledStop) bool {
		return stoprecord.FindScheduled([]torporv1alpha1.ScheduledStop{stop}, nil, f.now) != nil
	}
	if wave >= 0 && holds(next) != holds(before) && wish.StartedBy == "" {
		f.expectSpread(m, plan, wave)
	}
	if wave >= 0 && holds(next) && !holds(before) {
		f.expectTurn(m, plan, wave)
	}
	if wave >= 0 && !holds(next) && holds(before) && wish.StartedBy == "" {
		f.expectTurnToWake(m, plan, wave)
	}
	f.expectNeeded(m, plan, wave, wish)
	m.store(f.seen.Name, next)
	return true
}

// expectNeeded expects a member to be written only once per transition.
func (f *fleet) expectNeeded(m *modelMember, plan slumber.Plan, wave int, wish slumber.MemberWish) {
	f.t.Helper()
	transition := fmt.Sprint("left out, ", m.interventions)
	if wave >= 0 {
		is := plan.Status.Waves[wave]
		transition = fmt.Sprint(is.ShouldSleep, is.Since, plan.WindowEnd, m.interventions, f.seen.Generation, wish.Verb, f.now.Before(readSkip(m)))
	}
	if m.written == transition && m.cachedVersion == m.version {
		f.fail("expected one write of %s for one transition, found another: %s", m, transition)
	}
	m.written = transition
}

// expectSpread expects that a member is changed only after its turn in its wave.
func (f *fleet) expectSpread(m *modelMember, plan slumber.Plan, wave int) {
	f.t.Helper()
	began := plan.Status.Waves[wave].Since
	if began == nil {
		return
	}
	if turn := began.Add(slumber.SpreadOffset(m.stored.GetUID(), slumber.SpreadOf(f.seen))); f.now.Before(turn) {
		f.fail("expected %s of wave %d to wait for its turn at %s; waves %v", m, wave, turn, describeWaves(plan))
	}
}

// expectTurn checks the order of waves when a member is stopped. Each member of an earlier wave must have been asleep
// since that wave began, need no stop, or belong to a wave that has timed out.
func (f *fleet) expectTurn(m *modelMember, plan slumber.Plan, wave int) {
	f.t.Helper()
	for _, other := range f.members {
		before := f.waveOf(other, other.cached)
		if before < 0 || before >= wave || plan.Status.Waves[before].Since == nil {
			continue
		}
		is := plan.Status.Waves[before]
		since := is.Since.Add(-time.Minute)
		waitsSince := is.Since
		if is.WaitsSince != nil {
			waitsSince = is.WaitsSince
		}
		isLate := !f.now.Before(waitsSince.Add(30 * time.Minute))
		hasBegun := waitsSince.After(plan.Status.Waves[wave].Since.Time) // The window was changed while this wave was already asleep.
		if !isLate && !hasBegun && other.quietAt.Before(since) && other.excusedAt.Before(since) {
			f.fail("expected %s of wave %d to rest before %s of wave %d is stopped, found %+v; waves %v", other, before, m, wave, other.read(f.now), describeWaves(plan))
		}
	}
}

// expectTurnToWake checks the order of waves when a member is started. Each member of a later wave must have been awake
// since that wave began to wake, or belong to a wave that has timed out.
func (f *fleet) expectTurnToWake(m *modelMember, plan slumber.Plan, wave int) {
	f.t.Helper()
	for _, other := range f.members {
		behind := f.waveOf(other, other.cached)
		if behind <= wave || plan.Status.Waves[behind].Since == nil {
			continue
		}
		is := plan.Status.Waves[behind]
		isLate := !f.now.Before(is.Since.Add(30 * time.Minute))
		if is.ShouldSleep || !isLate && other.backAt.Before(is.Since.Add(-time.Minute)) && other.movedAt.Before(is.Since.Time) {
			f.fail("expected %s of wave %d to be back before %s of wave %d is started, found %+v; waves %v", other, behind, m, wave, other.read(f.now), describeWaves(plan))
		}
	}
}

func describeWaves(plan slumber.Plan) (words []string) {
	for _, w := range plan.Status.Waves {
		words = append(words, fmt.Sprintf("%s: sleeps %t since %v, settled %t, timed out %t, waits for %q", w.Name, w.ShouldSleep, w.Since, w.IsSettled, w.IsTimedOut, w.WaitsFor))
	}
	return words
}

// kill ends the manager: unwritten changes are lost, and the next manager observes everything again.
func (f *fleet) kill() {
	f.history = append(f.history, "  the manager dies")
	f.startedAt, f.hasWorkloads = f.now, false
	f.syncAll()
}

func (f *fleet) syncAll() {
	f.seen = f.slumber
	for _, m := range f.members {
		m.sync()
	}
}

// observeTruth records the stored state of every member, regardless of any cache.
func (f *fleet) observeTruth() {
	for _, m := range f.members {
		is := m.read(f.now)
		if is.IsAsleep {
			m.quietAt = f.now
		}
		isUnknown := m.Switch() != nil && !f.hasWorkloads && f.now.After(f.startedAt.Add(slumber.KindsGrace))
		if is.IsAwake || is.IsStoppedWithoutSlumbers || !is.IsStoppable || isUnknown {
			m.backAt = f.now
		}
		if !is.IsStoppable || isUnknown || f.now.Before(readSkip(m)) || m.resumes > 0 && !is.ResumedAt.IsZero() || f.waveOf(m, m.stored) < 0 || f.slumber.Spec.Suspend {
			m.excusedAt = f.now
		}
	}
}

// step performs a random action, and may run passes of the controllers.
func (f *fleet) step() {
	f.tick()
	m := f.members[f.random.IntN(len(f.members))]
	what := f.act(m)
	f.history = append(f.history, fmt.Sprintf("%s: %s %s", f.now.Format(time.DateTime), what, m))
	for _, i := range f.random.Perm(len(f.members)) {
		f.runController(f.members[i])
	}
	f.tick()
	f.observeTruth()
	end := []passEnd{completes, completes, completes, completes, completes, fails, dies}[f.random.IntN(7)]
	f.pass(end)
	f.expectPeopleFirst()
}

// runController may run a pass of a member's controller, and may let the member reach the requested state.
func (f *fleet) runController(m *modelMember) {
	if f.random.IntN(4) > 0 {
		m.sync()
	}
	if f.isManaged(m) && f.random.IntN(4) > 0 {
		m.control(m, f.now)
	}
	if f.random.IntN(3) == 0 && (m.Switch() != nil || f.isManaged(m)) {
		m.finish(m, f.now)
	}
}

// settle runs all controllers until every member has reached its intended state.
func (f *fleet) settle() {
	f.history = append(f.history, f.now.Format(time.DateTime)+": no user acts any longer")
	f.isAway, f.hasWorkloads = false, true
	for range 30 {
		f.tick()
		for _, m := range f.members {
			m.sync()
			m.control(m, f.now)
			m.finish(m, f.now)
			m.sync()
		}
		f.observeTruth()
		before := f.slumber
		f.pass(completes)
		state, isSeen := f.slumber.Status.State, f.slumber.Status.ObservedGeneration == f.slumber.Generation
		if isDone := state == torporv1alpha1.SlumberAsleep || state == torporv1alpha1.SlumberAwake; isDone && isSeen && reflect.DeepEqual(before.Status.Waves, f.slumber.Status.Waves) && f.isQuiet() {
			return
		}
	}
	f.fail("expected the end of the transition, found %s", f.lastPlan.Ready.Message)
}

// isQuiet reports whether every cache is up to date.
func (f *fleet) isQuiet() bool {
	return !slices.ContainsFunc(f.members, func(m *modelMember) bool { return m.cachedVersion != m.version })
}

// TestRandomSequencesKeepToTheModel has users stop, resume, change, skip and move members of every kind, and edit,
// suspend and delete the Slumber. Managers die, and at times no manager runs. Half of the sequences have a
// ClusterSlumber. Users also exclude its members by a label, or have a Slumber of the namespace select them. At any
// time, members that users have stopped are stopped, and waves keep their order. In the end, all other members follow
// the schedule, unless a user skips or has resumed them, and every switch has the value that users gave it.
func TestRandomSequencesKeepToTheModel(t *testing.T) {
	t.Parallel()
	count := sequences
	if os.Getenv("TORPOR_SOAK") != "" {
		count = soakSequences
	}
	kinds := listMemberKinds(t)
	for shard := range shards {
		t.Run(fmt.Sprintf("every %dth from %d", shards, shard), func(t *testing.T) {
			t.Parallel()
			for seed := shard; seed < count; seed += shards {
				f := newFleet(t, kinds, rand.New(rand.NewPCG(uint64(seed), 1)))
				f.history = append(f.history, fmt.Sprint("seed ", seed))
				for range steps {
					f.step()
				}
				f.expectAtRest()
			}
		})
	}
}

// expectAtRest expects all members to be in their intended state. After the deletion of the Slumber, this is the state
// that users have requested.
func (f *fleet) expectAtRest() {
	f.t.Helper()
	for _, m := range f.members {
		m.refusal = ""
		if m.GVK().Kind == "MySQLCluster" { // Any work on a MySQLCluster ends.
			for _, name := range worksOnDatabases() {
				m.annotate(name, "")
			}
		}
	}
	f.settle()
	schedule, err := slumber.ParseSchedule(f.slumber.Spec)
	if err != nil {
		f.t.Fatal(err)
	}
	f.expectAll(schedule.PhaseAt(f.now).IsAsleep && !f.slumber.Spec.Suspend)
	f.history = append(f.history, f.now.Format(time.DateTime)+": the Slumber goes")
	f.removeSlumber()
	f.tick()
	for range 2 {
		for _, m := range f.members {
			m.sync()
			m.control(m, f.now)
			m.finish(m, f.now)
		}
	}
	f.expectAll(false)
	for _, m := range f.members {
		if is := fieldswitch.ReadSwitch(m.stored); m.Switch() != nil && !m.isStopped(f.now) && (len(is.Saved) > 0 || len(is.Scheduled) > 0) {
			f.fail("expected nothing to be left in %s, found %v", m, m.stored.GetAnnotations())
		}
	}
}

// throughAPI returns a value as the API server would return it.
func throughAPI[T any](t testing.TB, value T) (back T) {
	t.Helper()
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// truncateTimes returns a status with times as the API server returns them.
func truncateTimes(status torporv1alpha1.SlumberStatus) torporv1alpha1.SlumberStatus {
	for _, at := range []**metav1.Time{&status.Since, &status.WindowStart} {
		truncateTime(at)
	}
	for i := range status.Waves {
		truncateTime(&status.Waves[i].Since)
		truncateTime(&status.Waves[i].WaitsSince)
	}
	return status
}

func truncateTime(at **metav1.Time) {
	if *at != nil {
		*at = new(metav1.NewTime((*at).Truncate(time.Second)))
	}
}
