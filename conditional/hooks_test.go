// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// hookLog is written by many goroutines.
type hookLog struct {
	mu    sync.Mutex
	lines []string
}

func (d *hookLog) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// read returns the lines since the last call.
func (d *hookLog) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *hookLog) expect(t *testing.T, when string, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(lines, d.read()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// hooks write down that they were called.
func (d *hookLog) hooks() Hooks {
	return Hooks{
		OnTransition: func(t Transition) {
			line := fmt.Sprintf("%s > %s by %s", t.From, t.To, t.Reason)
			if t.Err != nil {
				line += ": " + t.Err.Error()
			}
			d.write("%s", line)
		},
		BeforeStart: func(context.Context) error { d.write("before"); return nil },
		AfterStop:   func(context.Context) error { d.write("after"); return nil },
	}
}

// setup adds a runnable that writes down its start and its end.
func (d *hookLog) setup(mgr manager.Manager) error {
	d.write("setup")
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		d.write("returned")
		return nil
	}))
}

func TestHooksAreCalledInOrder(t *testing.T) {
	var d hookLog
	runGroup(t, d.setup, func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
		d.expect(t, "start", "Dormant > Starting by Wanted", "before", "setup", "Starting > Running by Up")
		r.report(True, "b")
		d.expect(t, "restart", "Running > Draining by Changed", "returned", "after", "Draining > Dormant by Ended",
			"Dormant > Starting by Wanted", "before", "setup", "Starting > Running by Up")
		r.stop()
		synctest.Wait()
		got := d.read()
		slices.Sort(got) // The runnable sees the end of the manager's context by itself.
		want := []string{"Draining > Dormant by Ended", "Running > Draining by Unwanted", "after", "returned"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the manager stops (-want +got):\n%s", diff)
		}
	}, WithHooks(d.hooks()))
}

func TestHooksThatFail(t *testing.T) {
	boom := errors.New("boom")
	fails := func(context.Context) error { return boom }
	panics := func(context.Context) error { panic("boom") }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	cases := map[string]struct {
		change func(h *Hooks)
		start  []string
		stop   []string
		status string // after the stop
	}{
		"BeforeStart fails": {
			func(h *Hooks) { h.BeforeStart = fails },
			[]string{"Dormant > Starting by Wanted", "Starting > Failed by Erred: BeforeStart: boom"},
			[]string{"Failed > Dormant by Unwanted"},
			"BeforeStart: boom",
		},
		"BeforeStart panics": {
			func(h *Hooks) { h.BeforeStart = panics },
			[]string{"Dormant > Starting by Wanted", "Starting > Failed by Erred: BeforeStart panicked: boom"},
			[]string{"Failed > Dormant by Unwanted"},
			"BeforeStart panicked: boom",
		},
		"BeforeStart ends with the stop": {
			func(h *Hooks) { h.BeforeStart = hangs },
			[]string{"Dormant > Starting by Wanted"},
			[]string{"Starting > Draining by Unwanted", "Draining > Dormant by Ended"},
			"",
		},
		"AfterStop fails": {
			func(h *Hooks) { h.AfterStop = fails },
			[]string{"Dormant > Starting by Wanted", "before", "setup", "Starting > Running by Up"},
			[]string{"Running > Draining by Unwanted", "returned", "Draining > Dormant by Ended: AfterStop: boom"},
			"AfterStop: boom",
		},
		"AfterStop panics": {
			func(h *Hooks) { h.AfterStop = panics },
			[]string{"Dormant > Starting by Wanted", "before", "setup", "Starting > Running by Up"},
			[]string{"Running > Draining by Unwanted", "returned", "Draining > Dormant by Ended: AfterStop panicked: boom"},
			"AfterStop panicked: boom",
		},
		"OnTransition panics": {
			func(h *Hooks) { h.OnTransition = func(Transition) { panic("boom") } },
			[]string{"before", "setup"},
			[]string{"returned", "after"},
			"",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var d hookLog
			h := d.hooks()
			c.change(&h)
			runGroup(t, d.setup, func(r *groupEnv) {
				r.elect()
				r.report(True, "a")
				d.expect(t, "start", c.start...)
				r.report(False, "")
				d.expect(t, "stop", c.stop...)
				r.expectPhase(Dormant)
				if got := r.group.Status().Error; got != c.status {
					t.Errorf("status says %q, want %q", got, c.status)
				}
			}, WithHooks(h))
		})
	}
}

func TestBeforeStartIsTriedAgain(t *testing.T) {
	var tries atomic.Int32
	var d hookLog
	h := d.hooks()
	h.OnTransition = nil
	h.BeforeStart = func(context.Context) error {
		if tries.Add(1) < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	runGroup(t, d.setup, func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
		r.expectPhase(Failed)
		d.expect(t, "a start that failed before its setup has nothing to clean up")
		r.advance(5 * time.Second)
		r.expectPhase(Running)
		d.expect(t, "the third try", "setup")
	}, WithHooks(h))
}

func TestAfterStopFollowsAFailedStart(t *testing.T) {
	var d hookLog
	setup := func(manager.Manager) error { return errors.New("boom") }
	runGroup(t, setup, func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
		got := d.read()
		slices.Sort(got) // The hook and the transition to Draining go side by side.
		want := []string{"Dormant > Starting by Wanted", "Draining > Failed by Erred: setup: boom", "Starting > Draining by Broke", "after", "before"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("failed start (-want +got):\n%s", diff)
		}
	}, WithHooks(d.hooks()))
}

func TestAfterStopHasATimeOfItsOwn(t *testing.T) {
	var d hookLog
	h := d.hooks()
	slow := func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(20 * time.Second)
			return nil
		}))
	}
	t.Run("it ends with its context", func(t *testing.T) {
		h.AfterStop = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		runGroup(t, slow, func(r *groupEnv) {
			r.elect()
			r.report(True, "a")
			r.report(False, "")
			r.advance(49 * time.Second)
			r.expectPhase(Draining)
			r.advance(time.Second)
			r.expectPhase(Dormant)
			if got := r.group.Status().Error; !strings.Contains(got, "deadline exceeded") {
				t.Errorf("status says %q, want the deadline", got)
			}
		}, WithHooks(h))
	})
	t.Run("it ignores its context", func(t *testing.T) {
		h.AfterStop = func(context.Context) error { <-time.After(time.Hour); return nil }
		runGroup(t, slow, func(r *groupEnv) {
			r.elect()
			r.report(True, "a")
			r.report(False, "")
			r.report(True, "a")
			r.advance(52 * time.Second)
			r.expectPhase(Stuck) // Nothing starts before it has returned.
			r.advance(time.Hour)
			r.expectPhase(Running)
			r.report(False, "")
			r.advance(2 * time.Hour)
		}, WithHooks(h))
	})
}

func TestTransitionsAreToldWithoutALock(t *testing.T) {
	var at []time.Time
	var g *Group
	h := Hooks{OnTransition: func(tr Transition) {
		if s := g.Status(); s.Phase != tr.To || s.Since != tr.At || s.Reason != tr.Reason || s.Name != tr.Group {
			t.Errorf("status %+v in transition %+v", s, tr)
		}
		at = append(at, tr.At)
	}}
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		g = r.group
		r.elect()
		r.report(True, "a")
		r.advance(time.Minute)
		r.report(False, "")
	}, WithHooks(h))
	if len(at) != 4 || at[2].Sub(at[1]) != time.Minute {
		t.Errorf("transitions at %v", at)
	}
}

// TestClockThatIsSetMovesNothing asks for a monotonic reading, which bubbles do not have.
func TestClockThatIsSetMovesNothing(t *testing.T) {
	g := &Group{changed: make(chan struct{})}
	if tr, _ := g.setPhase(Running, statemachine.Up, nil); !strings.Contains(tr.At.String(), " m=") {
		t.Errorf("%s has no monotonic reading: spans and pauses that begin with it would follow the wall clock", tr.At)
	}
}

// recordedEvents returns the events so far.
func recordedEvents(rec *events.FakeRecorder) (lines []string) {
	for len(rec.Events) > 0 {
		lines = append(lines, <-rec.Events)
	}
	return lines
}

func TestEventsTellWhatHappens(t *testing.T) {
	rec := events.NewFakeRecorder(100)
	var fail, hang atomic.Bool
	var broken chan error
	setup := func(mgr manager.Manager) error {
		if fail.Load() {
			return errors.New("boom")
		}
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			select {
			case err := <-broken:
				return err
			case <-ctx.Done():
			}
			if hang.Load() {
				<-time.After(time.Minute)
			}
			return nil
		}))
	}
	runGroup(t, setup, func(r *groupEnv) {
		broken = make(chan error)
		want := func(when string, lines ...string) {
			t.Helper()
			for i, line := range lines {
				lines[i] = strings.Replace(line, "GROUP", "group "+t.Name(), 1)
			}
			if diff := cmp.Diff(lines, recordedEvents(rec)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		r.report(True, "a")
		want("another replica leads")
		r.elect()
		want("start", "Normal ControllerStarted GROUP: all its runnables have been started: ")
		r.report(False, "")
		want("stop", "Normal ControllerStopped GROUP: everything has returned: ")
		fail.Store(true)
		r.report(True, "a")
		want("failed start", "Warning ControllerStartFailed GROUP: setup: boom")
		r.report(False, "")
		want("given up")
		fail.Store(false)
		r.report(True, "a")
		broken <- errors.New("broken")
		synctest.Wait()
		r.advance(2 * time.Second)
		want("broken while running", "Normal ControllerStarted GROUP: all its runnables have been started: ",
			"Warning ControllerStopped GROUP: broken", "Normal ControllerStarted GROUP: all its runnables have been started: ")
		hang.Store(true)
		r.report(False, "")
		r.advance(2 * time.Minute)
		want("a long stop", "Warning ControllerStuck GROUP: something has not returned within 30s; nothing starts before it does",
			"Normal ControllerStopped GROUP: everything has returned: ")
	}, Events(rec, &corev1.ConfigMap{}))
}

// terminatingCondition is a condition whose CRD is being deleted.
type terminatingCondition struct {
	switchedCondition
	dooms chan bool
}

func (d terminatingCondition) Observe(ctx context.Context, src Sources, report func(Status)) error {
	for {
		select {
		case now := <-d.dooms:
			src.onTerminating("Widget.v1.example.com", now)
		case status := <-d.says:
			report(status)
		case <-ctx.Done():
			return nil
		}
	}
}

func TestEventsTellOfTerminating(t *testing.T) {
	cases := map[string]struct {
		opts []Option
		want string
	}{
		"waits": {nil, "the controller goes on until the CRD is gone, for its objects may have finalizers"},
		"stops": {[]Option{StopOnTerminating()}, "the controller stops, as StopOnTerminating says, and leaves its finalizers on"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := events.NewFakeRecorder(100)
				rec.Verbose = true
				mgr := newFakeManager()
				close(mgr.elected)
				when := terminatingCondition{switchedCondition{make(chan Status)}, make(chan bool)}
				var starts, ends atomic.Int32
				mustSetUp(t, mgr, when, obedientSetup(&starts, &ends), append(c.opts, Events(rec, &corev1.ConfigMap{}), Name("g"))...)
				go func() { _ = mgr.added[0].Start(t.Context()) }()
				when.dooms <- true
				synctest.Wait()
				if got := recordedEvents(rec); len(got) > 0 {
					t.Errorf("a dormant group tells %v", got)
				}
				when.dooms <- false
				when.says <- Status{State: True}
				synctest.Wait()
				for range 3 {
					when.dooms <- true
					synctest.Wait()
				}
				when.says <- Status{State: False}
				synctest.Wait()
				want := []string{
					"Normal ControllerStarted Start group g: all its runnables have been started: ",
					"Normal ControllerTerminating Terminate group g: the CRD of Widget.v1.example.com is being deleted: " + c.want,
					"Normal ControllerStopped Stop group g: everything has returned: ",
				}
				if diff := cmp.Diff(want, recordedEvents(rec)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestNotesAreNotTooLong(t *testing.T) {
	rec := events.NewFakeRecorder(100)
	runGroup(t, func(manager.Manager) error { return errors.New(strings.Repeat("long ", 1000)) }, func(r *groupEnv) {
		r.elect()
		r.report(True, "a")
	}, Events(rec, &corev1.ConfigMap{}))
	for _, line := range recordedEvents(rec) {
		if note := strings.TrimPrefix(line, "Warning ControllerStartFailed "); len(note) != maxNote {
			t.Errorf("a note has %d bytes, want %d", len(note), maxNote)
		}
	}
}
