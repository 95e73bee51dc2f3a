// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func TestFlappingIsHeldBack(t *testing.T) {
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		r.elect()
		began := time.Now()
		for i := range 600 { // Ten changes per second for one minute. The last one is to False.
			r.report([]State{True, False}[i%2], "a")
			r.advance(100 * time.Millisecond)
		}
		// Five starts without a pause in 0.8 s, then one after 10 s and one after 20 s. The next pause, of 40 s, has
		// not elapsed.
		if got := starts.Load(); got != 7 || ends.Load() != 7 {
			t.Errorf("%d starts and %d ends in a minute of flapping, want 7 of each", got, ends.Load())
		}
		r.expectPhase(Dormant)
		if s := r.group.Status(); !s.HeldUntil.IsZero() {
			t.Errorf("held until %s while the condition is false", s.HeldUntil)
		}

		r.report(True, "a")
		r.expectPhase(Dormant)
		if got, want := r.group.Status().HeldUntil.Sub(began), 70800*time.Millisecond; got != want {
			t.Errorf("held until %s after the beginning, want %s", got, want)
		}
		if err := r.group.Checker(RequireRunning)(nil); err == nil || !strings.Contains(err.Error(), "restart limit") {
			t.Errorf("RequireRunning returned %v, want an error with the restart limit", err)
		}
		r.report(False, "")
		r.report(True, "b") // Of the reports during the pause, only the last one counts.
		r.advance(10800 * time.Millisecond)
		r.expectPhase(Running)
		if s := r.group.Status(); starts.Load() != 8 || !s.HeldUntil.IsZero() {
			t.Errorf("%d starts, held until %s, want 8 and none", starts.Load(), s.HeldUntil)
		}
		lines := 0
		for _, line := range r.mgr.logged {
			if strings.Contains(line, "delays the next start") {
				lines++
			}
		}
		if lines != 3 {
			t.Errorf("the log has %d lines of the restart limit, want one for each of 3 pauses", lines)
		}
	})
}

func TestRestartLimitForgivesAndLeaps(t *testing.T) {
	var starts, ends atomic.Int32
	once := RestartLimit(1, wait.Backoff{Duration: time.Minute})
	again := func(r *groupEnv) { r.report(False, ""); r.report(True, "a") }
	cases := map[string]struct {
		until func(r *groupEnv)
		want  Phase
	}{
		"a restart during the pause is held back":                                                   {func(*groupEnv) {}, Dormant},
		"a restart after the pause starts at once":                                                  {func(r *groupEnv) { r.advance(time.Minute) }, Running},
		"a restart after ten minutes of running starts at once, because earlier starts are cleared": {func(r *groupEnv) { r.advance(time.Minute); again(r); r.advance(10 * time.Minute) }, Running},
		"a restart after nine minutes of running starts at once, because the pause has elapsed":     {func(r *groupEnv) { r.advance(time.Minute); again(r); r.advance(9 * time.Minute) }, Running},
		"a restart for another identity is held back as well":                                       {func(r *groupEnv) { r.report(True, "b") }, Dormant},
		"a clock that jumps by a day causes one start":                                              {func(r *groupEnv) { again(r); r.advance(24 * time.Hour) }, Running},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
				r.elect()
				r.report(True, "a")
				c.until(r)
				again(r)
				r.expectPhase(c.want)
			}, once)
		})
	}
	if starts.Load() != ends.Load() {
		t.Errorf("%d starts and %d ends", starts.Load(), ends.Load())
	}
}

// TestAQuietMinuteIsForgiven restarts a group until the limit holds it back, and waits. Then it counts the starts that
// are not held back.
func TestAQuietMinuteIsForgiven(t *testing.T) {
	restart := func(r *groupEnv) { r.report(False, ""); r.report(True, "a") }
	for name, c := range map[string]struct {
		wait func(r *groupEnv)
		// want is the number of consecutive starts after the wait: one if only the pause has elapsed, five if the
		// limiter is reset.
		want int32
	}{
		"false condition for one minute: limiter is reset": {func(r *groupEnv) { r.report(False, ""); r.advance(time.Minute); r.report(True, "a") }, 5},
		"one minute in Running: limiter is reset":          {func(r *groupEnv) { r.advance(10*time.Second + time.Minute); restart(r) }, 5},
		"false condition for one minute with an interruption: limiter is not reset": {func(r *groupEnv) {
			r.report(False, "")
			r.advance(30 * time.Second)
			restart(r)
			r.report(False, "")
			r.advance(40 * time.Second)
			r.report(True, "a")
		}, 1},
		"false condition for less than one minute: limiter is not reset": {func(r *groupEnv) { r.report(False, ""); r.advance(59 * time.Second); r.report(True, "a") }, 1},
		"less than one minute in Running: limiter is not reset":          {func(r *groupEnv) { r.advance(10*time.Second + 59*time.Second); restart(r) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var starts, ends atomic.Int32
			runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
				r.elect()
				r.report(True, "a")
				for starts.Load() < 5 {
					restart(r)
				}
				restart(r)
				r.expectPhase(Dormant)
				c.wait(r)
				r.expectPhase(Running)
				before := starts.Load() - 1 // The wait ends with one start.
				for range 10 {
					restart(r)
				}
				if got := starts.Load() - before; got != c.want {
					t.Errorf("%d starts in a row, want %d", got, c.want)
				}
			})
		})
	}
}

func TestStopIsNeverHeldBack(t *testing.T) {
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
		r.report(True, "b") // The start is held back, the stop is immediate.
		r.expectPhase(Dormant)
		if ends.Load() != 1 {
			t.Errorf("%d ends, want 1 at once", ends.Load())
		}
		r.stop() // The start is still held back.
		synctest.Wait()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	}, RestartLimit(1, wait.Backoff{Duration: time.Hour}))
}

// groupCrowd runs many groups in one manager. Their setup functions block until they receive from door.
type groupCrowd struct {
	rig    *groupEnv
	groups []*Group
	says   []chan Status
	inside atomic.Int32
	door   chan struct{}
	stop   context.CancelFunc // stops the manager
}

func runCrowd(t *testing.T, size int, test func(c *groupCrowd)) {
	synctest.Test(t, func(t *testing.T) {
		c := &groupCrowd{rig: &groupEnv{t: t, mgr: newFakeManager()}, door: make(chan struct{})}
		var ctx context.Context
		ctx, c.stop = context.WithCancel(t.Context())
		for i := range size {
			says := make(chan Status)
			g, err := Setup(c.rig.mgr, switchedCondition{says}, func(manager.Manager) error {
				c.inside.Add(1)
				defer c.inside.Add(-1)
				<-c.door
				return nil
			}, Name(fmt.Sprint("crowd-", i)))
			testenv.Must(t, err)
			c.groups, c.says = append(c.groups, g), append(c.says, says)
		}
		go func() {
			if err := c.rig.mgr.added[0].Start(ctx); err != nil {
				t.Error(err)
			}
		}()
		c.rig.elect()
		for _, says := range c.says {
			says <- Status{State: True}
		}
		synctest.Wait()
		test(c)
		c.stop()
		synctest.Wait()
	})
}

func (c *groupCrowd) wantInside(want int32, when string) {
	c.rig.t.Helper()
	if got := c.inside.Load(); got != want {
		c.rig.t.Errorf("%s: %d setup functions run, want %d", when, got, want)
	}
}

func TestFewGroupsStartAtOnce(t *testing.T) {
	runCrowd(t, 20, func(c *groupCrowd) {
		c.wantInside(16, "all wanted")
		for range 10 {
			c.door <- struct{}{}
			synctest.Wait()
		}
		c.wantInside(10, "ten are up")
		close(c.door)
		synctest.Wait()
		for _, g := range c.groups {
			if p := g.Status().Phase; p != Running {
				t.Errorf("%s is %s", g.Status().Name, p)
			}
		}
	})
}

func TestHangingStartsDoNotBlockOthers(t *testing.T) {
	runCrowd(t, 20, func(c *groupCrowd) {
		c.wantInside(16, "all wanted")
		waiting := 0
		for i, g := range c.groups { // A group that waits to start can be stopped immediately, unlike one whose setup function hangs.
			c.says[i] <- Status{State: False}
			synctest.Wait()
			if g.Status().Phase == Dormant {
				waiting++
			}
			c.says[i] <- Status{State: True}
			synctest.Wait()
		}
		if waiting != 4 {
			t.Errorf("%d groups stopped at once, want the 4 that waited for their turn", waiting)
		}
		c.rig.advance(slowStart)
		c.wantInside(20, "the first have hung for a while")
		close(c.door)
		synctest.Wait()
		for _, g := range c.groups {
			if p := g.Status().Phase; p != Running {
				t.Errorf("%s is %s", g.Status().Name, p)
			}
		}
	})
}

func TestWaitForATurnEndsWithTheManager(t *testing.T) {
	runCrowd(t, 20, func(c *groupCrowd) {
		c.stop()
		synctest.Wait()
		phases := map[Phase]int{}
		for _, g := range c.groups {
			phases[g.Status().Phase]++
		}
		if diff := cmp.Diff(map[Phase]int{Draining: 16, Dormant: 4}, phases); diff != "" {
			t.Errorf("phases after the manager stopped (-want +got):\n%s", diff)
		}
		close(c.door)
	})
}

// startEagerly records n starts, each as early as the limit allows, and returns the pauses before them.
func startEagerly(p *startLimiter, now time.Time, n int) (waited []time.Duration) {
	for range n {
		pause := max(0, p.next.Sub(now))
		now = now.Add(pause)
		p.noteStart(now)
		waited = append(waited, pause)
	}
	return waited
}

func TestStartsGetEverLongerPauses(t *testing.T) {
	const s, m = time.Second, time.Minute
	grows := wait.Backoff{Duration: 10 * s, Factor: 2, Steps: 100, Cap: m}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		pace *startLimiter
		want []time.Duration
	}{
		"five starts without a pause, then growing pauses":  {newStartLimiter(5, grows), []time.Duration{0, 0, 0, 0, 0, 10 * s, 20 * s, 40 * s, m, m}},
		"one start without a pause, then growing pauses":    {newStartLimiter(1, grows), []time.Duration{0, 10 * s, 20 * s, 40 * s, m}},
		"two starts without a pause, then a constant pause": {newStartLimiter(2, wait.Backoff{Duration: s}), []time.Duration{0, 0, s, s, s}},
		"ten quiet minutes clear the earlier starts": {func() *startLimiter {
			p := newStartLimiter(2, grows)
			startEagerly(p, now, 7)
			p.noteQuiet(10 * m)
			return p
		}(), []time.Duration{0, 0, 10 * s, 20 * s}},
		"a quiet minute clears the earlier starts": {func() *startLimiter {
			p := newStartLimiter(2, grows)
			startEagerly(p, now, 7)
			p.noteQuiet(m)
			return p
		}(), []time.Duration{0, 0, 10 * s, 20 * s}},
		"a quiet period of less than a minute does not clear the earlier starts": {func() *startLimiter {
			p := newStartLimiter(2, grows)
			startEagerly(p, now.Add(-time.Hour), 3)
			p.noteQuiet(m - 1)
			return p
		}(), []time.Duration{0, 40 * s, m}},
		"a limit with a pause of an hour is not reset by a shorter quiet period": {func() *startLimiter {
			p := newStartLimiter(1, wait.Backoff{Duration: time.Hour})
			startEagerly(p, now, 1)
			p.noteQuiet(time.Hour - 1)
			return p
		}(), []time.Duration{time.Hour, time.Hour}},
		"a pause that has already elapsed does not delay the next start": {func() *startLimiter {
			p := newStartLimiter(1, grows)
			startEagerly(p, now.Add(-time.Hour), 1)
			return p
		}(), []time.Duration{0, 20 * s}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, startEagerly(c.pace, now, len(c.want))); diff != "" {
				t.Errorf("waited (-want +got):\n%s", diff)
			}
		})
	}
}
