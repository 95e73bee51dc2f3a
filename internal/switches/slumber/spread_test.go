// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

func uidOf(i int) types.UID {
	return types.UID(fmt.Sprintf("7b1c%04x-0000-4000-8000-00000000%04x", i, i))
}

// TestSpreadOffset has fixed expected values, so that no release changes the turns of objects.
func TestSpreadOffset(t *testing.T) {
	t.Parallel()
	for uid, want := range map[types.UID]time.Duration{
		"": 13 * time.Minute, uidOf(0): 195 * time.Second, uidOf(1): 570 * time.Second, "2f6f1b0e-7f0e-4c39-9a2b-1d0d6b6d2a11": 525 * time.Second,
	} {
		if is := slumber.SpreadOffset(uid, 15*time.Minute); is != want {
			t.Errorf("%q: expected %s, found %s", uid, want, is)
		}
	}
	for _, over := range []time.Duration{0, -time.Minute, time.Second, 59 * time.Second, time.Minute, 15 * time.Minute, 4 * time.Hour} {
		batches := map[time.Duration]int{}
		const objects = 10_000
		for i := range objects {
			offset := slumber.SpreadOffset(uidOf(i), over)
			if offset != slumber.SpreadOffset(uidOf(i), over) || offset < 0 || offset > 0 && offset >= over || offset%time.Second != 0 {
				t.Fatalf("expected whole seconds below %s, found %s for %s", over, offset, uidOf(i))
			}
			batches[offset]++
		}
		if over < time.Minute {
			continue
		}
		if len(batches) != 60 {
			t.Errorf("%s: expected 60 batches, found %d", over, len(batches))
		}
		for offset, size := range batches {
			if size > 2*objects/60 || size < objects/60/2 {
				t.Errorf("%s: expected about %d objects at %s, found %d", over, objects/60, offset, size)
			}
		}
	}
}

// spreadNight is a Slumber with two waves of members that stop and start within one second, and its controller.
type spreadNight struct {
	t       *testing.T
	now     time.Time
	slumber *torporv1alpha1.Slumber
	waves   [][]slumber.Member
	// stopped and started are the times of the writes.
	stopped, started map[string]time.Time
	// hasChanged is true if the last pass changed members, which triggers another pass.
	hasChanged bool
}

func newSpreadNight(t *testing.T, over time.Duration, membersOfWave int) *spreadNight {
	t.Helper()
	n := &spreadNight{t: t, slumber: nights(), stopped: map[string]time.Time{}, started: map[string]time.Time{}}
	n.slumber.Spec.SpreadOver = &metav1.Duration{Duration: over}
	for wave := range n.slumber.Spec.Waves {
		var members []slumber.Member
		for i := range membersOfWave {
			m := awake(fmt.Sprintf("%d-%d", wave, i))
			m.UID = uidOf(1000*wave + i)
			members = append(members, m)
		}
		n.waves = append(n.waves, members)
	}
	return n
}

// pass decides, saves the status as the API server does, and changes the members immediately.
func (n *spreadNight) pass() slumber.Plan {
	n.t.Helper()
	plan := slumber.Decide(slumber.Observed{Now: n.now, Slumber: n.slumber, Waves: n.waves})
	n.hasChanged = false
	for i, wishes := range plan.Wishes {
		for j, wish := range wishes {
			m := &n.waves[i][j]
			next := plan.NextStops(n.slumber, *m, i, wish, n.now)
			isStopped := len(next.Stops) > 0 && next.Stops[0].EndedAt == nil
			if isStopped == m.IsStopped {
				continue
			}
			if n.hasChanged = true; isStopped {
				n.stopped[m.Name] = n.now
			} else {
				n.started[m.Name] = n.now
			}
			turn := n.slumber.Status.Waves[i].Since.Add(slumber.SpreadOffset(m.UID, n.slumber.Spec.SpreadOver.Duration))
			if at := next.Stops[0].Since; isStopped && !at.Time.Equal(turn) {
				n.t.Fatalf("%s: expected a record of its turn at %s, found %s", m.Name, turn, at)
			}
			if next.ExpiresAt != nil && next.ExpiresAt.Before(next.Stops[0].Until) {
				n.t.Fatalf("%s: expected the stop to expire after its end, found %+v", m.Name, next)
			}
			m.ScheduledStops = []torporv1alpha1.ScheduledStop{throughAPI(n.t, next)}
			m.IsStopped, m.IsAsleep, m.IsAwake = isStopped, isStopped, !isStopped
		}
	}
	saved := n.slumber.DeepCopy()
	saved.Status = throughAPI(n.t, truncateTimes(plan.Status))
	n.slumber = saved
	return plan
}

// runUntil runs the passes that the plans request until a time, and returns their number.
func (n *spreadNight) runUntil(end time.Time) (passes int) {
	n.t.Helper()
	for n.now.Before(end) {
		after := n.pass().RequeueAfter
		if after <= 0 {
			n.t.Fatalf("expected another pass, found none after %s", n.now)
		}
		if n.hasChanged {
			after = time.Second
		}
		n.now = n.now.Add(max(after, time.Second))
		passes++
	}
	n.now = end
	return passes
}

// expectTurns expects each member of a wave to have changed at its turn after a time, and returns the time of the last.
func (n *spreadNight) expectTurns(wave int, began time.Time, changed map[string]time.Time) (last time.Time) {
	n.t.Helper()
	over := n.slumber.Spec.SpreadOver.Duration
	for _, m := range n.waves[wave] {
		turn := began.Add(slumber.SpreadOffset(m.UID, over))
		at, isChanged := changed[m.Name]
		// One pass saves the start of a wave's transition, and the next one acts.
		if late := at.Sub(turn); !isChanged || late < 0 || late > 4*time.Second {
			n.t.Fatalf("%s: expected a change at %s, found %s", m.Name, turn, at)
		}
		if at.After(last) {
			last = at
		}
	}
	if !last.Before(began.Add(over + 4*time.Second)) {
		n.t.Fatalf("wave %d: expected the last change within %s of %s, found %s", wave, over, began, last)
	}
	return last
}

// TestSpreadWaves follows a night of two waves of 500 members: each member changes at its turn, the second wave
// follows the first, and there are about as few passes as batches.
func TestSpreadWaves(t *testing.T) {
	t.Parallel()
	for _, over := range []time.Duration{time.Minute, 15 * time.Minute, 90 * time.Minute} {
		t.Run(over.String(), func(t *testing.T) {
			t.Parallel()
			n := newSpreadNight(t, over, 500)
			evening := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC)
			n.now = evening.Add(-time.Hour)
			n.runUntil(evening)
			passes := n.runUntil(evening.Add(2*over + time.Minute))
			last := n.expectTurns(0, evening, n.stopped)
			second := n.slumber.Status.Waves[1].Since.Time
			if second.Before(last) || second.After(last.Add(4*time.Second)) {
				t.Errorf("expected the second wave to follow the first at %s, found %s", last, second)
			}
			n.expectTurns(1, second, n.stopped)
			if n.slumber.Status.State != torporv1alpha1.SlumberAsleep || len(n.started) > 0 {
				t.Errorf("expected all to be asleep, found %s and %v", n.slumber.Status.State, n.started)
			}
			if passes > 2*2*60+20 {
				t.Errorf("expected two passes for each batch, found %d", passes)
			}
			morning := evening.Add(11 * time.Hour)
			n.runUntil(morning)
			n.runUntil(morning.Add(2*over + time.Minute))
			n.expectTurns(1, morning, n.started)
			n.expectTurns(0, n.slumber.Status.Waves[0].Since.Time, n.started)
			if n.slumber.Status.State != torporv1alpha1.SlumberAwake {
				t.Errorf("expected all to be awake, found %s", n.slumber.Status.State)
			}
		})
	}
}

// TestSpreadDoesNotMove kills the manager, and adds and removes a member: the turns of the other members do not change.
func TestSpreadDoesNotMove(t *testing.T) {
	t.Parallel()
	evening := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC)
	n := newSpreadNight(t, 15*time.Minute, 100)
	n.now = evening
	n.runUntil(evening.Add(5 * time.Minute))
	// No manager runs for three minutes. In this time a member is deleted and another one is created.
	n.now = n.now.Add(3 * time.Minute)
	gone := maps.Clone(n.stopped)
	n.waves[0] = n.waves[0][1:]
	joined := awake("joined")
	joined.UID = uidOf(5000)
	n.waves[0] = append(n.waves[0], joined)
	returned := n.now
	n.runUntil(evening.Add(16 * time.Minute))
	for _, m := range n.waves[0] {
		turn, at := evening.Add(slumber.SpreadOffset(m.UID, 15*time.Minute)), n.stopped[m.Name]
		want := turn
		if _, isDone := gone[m.Name]; !isDone && turn.Before(returned) {
			want = returned
		}
		if late := at.Sub(want); late < 0 || late > 4*time.Second {
			t.Errorf("%s: expected a stop at %s, found %s", m.Name, want, at)
		}
	}
}

// TestSpreadAndUsers has users skip and resume members while a wave is spread. Their requests take effect before the
// turn, and a skip that ends after the turn ends on time.
func TestSpreadAndUsers(t *testing.T) {
	t.Parallel()
	evening, morning := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC), time.Date(2026, 11, 25, 7, 0, 0, 0, time.UTC)
	const over = time.Hour
	n := newSpreadNight(t, over, 20)
	turn := func(i int) time.Duration { return slumber.SpreadOffset(n.waves[0][i].UID, over) }
	n.now = evening
	skipEnd := evening.Add(90 * time.Minute)
	n.waves[0][0].SkippedUntil = skipEnd
	n.waves[0][1].SkippedUntil = evening.Add(turn(1) / 2) // The skip ends before the member's turn.
	n.runUntil(evening.Add(4 * time.Hour))
	for i, want := range map[int]time.Time{0: skipEnd, 1: evening.Add(turn(1)), 2: evening.Add(turn(2))} {
		if late := n.stopped[n.waves[0][i].Name].Sub(want); late < 0 || late > 4*time.Second {
			t.Errorf("member %d: expected a stop at %s, found %s", i, want, n.stopped[n.waves[0][i].Name])
		}
	}
	n.runUntil(morning)
	n.runUntil(morning.Add(10 * time.Second))
	waiting := -1 // A member whose turn to start has not come. The second wave is started first.
	for i, m := range n.waves[1] {
		if m.IsStopped && slumber.SpreadOffset(m.UID, over) > 10*time.Minute {
			waiting = i
		}
	}
	if waiting < 0 {
		t.Fatal("expected a member whose turn has not come, found none")
	}
	n.waves[1][waiting].ResumedAt, n.waves[1][waiting].ResumedBy = metav1.NewTime(n.now), "bob"
	n.pass()
	if at := n.started[n.waves[1][waiting].Name]; !at.Equal(n.now) {
		t.Errorf("expected a resumed member to start at once, found %s", at)
	}
	if by := n.waves[1][waiting].ScheduledStops[0].Stops[0].StartedBy; by != "bob" {
		t.Errorf("expected a start by bob, found %q", by)
	}
}

// TestSpreadAtChangesOfTheClocks has windows that begin when clocks in Berlin skip or repeat an hour: turns count
// elapsed time from the start of the window, which occurs only once.
func TestSpreadAtChangesOfTheClocks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ day, began time.Time }{
		"a spread in a skipped hour begins at the end of the hour":   {time.Date(2026, 3, 28, 21, 0, 0, 0, time.UTC), time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},
		"a spread in a repeated hour begins in its first occurrence": {time.Date(2026, 10, 24, 21, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newSpreadNight(t, 90*time.Minute, 50)
			n.slumber.Spec.TimeZone = "Europe/Berlin"
			n.slumber.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "30 2 * * *", Wake: "0 20 * * *"}}
			n.slumber.Spec.Waves, n.waves = n.slumber.Spec.Waves[:1], n.waves[:1]
			n.now = row.day
			n.runUntil(row.began)
			if len(n.stopped) > 0 {
				t.Fatalf("expected no stop before %s, found %v", row.began, n.stopped)
			}
			n.runUntil(row.began.Add(3 * time.Hour))
			n.expectTurns(0, row.began, n.stopped)
		})
	}
}

// TestSpreadExtendsTimeouts has a member that never falls asleep: the next wave waits for the spread and then for
// spec.waveTimeout.
func TestSpreadExtendsTimeouts(t *testing.T) {
	t.Parallel()
	n := newSpreadNight(t, 20*time.Minute, 1)
	evening := time.Date(2026, 11, 24, 20, 0, 0, 0, time.UTC)
	stuck := func(at time.Time) torporv1alpha1.SlumberWaveStatus {
		n.now = at
		n.pass()
		n.waves[0][0].IsAsleep = false
		return n.slumber.Status.Waves[0]
	}
	stuck(evening)
	if is := stuck(evening.Add(49 * time.Minute)); is.IsTimedOut {
		t.Errorf("expected the wave to wait for the spread and spec.waveTimeout, found %+v", is)
	}
	if is := stuck(evening.Add(51 * time.Minute)); !is.IsTimedOut {
		t.Errorf("expected the wave to time out after the spread and spec.waveTimeout, found %+v", is)
	}
}
