// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// TestTransitionsUseTheMonotonicClock needs a monotonic clock reading, which is not available in a synctest bubble.
func TestTransitionsUseTheMonotonicClock(t *testing.T) {
	g := mustSetUp(t, newFakeManager(), Disabled(), func(manager.Manager) error { return nil }, Name(t.Name()))
	if tr, _, _ := g.setPhase(Running, factUp, nil); !strings.Contains(tr.at.String(), " m=") {
		t.Errorf("%s has no monotonic reading: spans and pauses that begin with it would follow the wall clock", tr.at)
	}
}

// recordedEvents returns the events recorded so far.
func recordedEvents(rec *events.FakeRecorder) (lines []string) {
	for len(rec.Events) > 0 {
		lines = append(lines, <-rec.Events)
	}
	return lines
}

func TestEventsReportStartsStopsAndFailures(t *testing.T) {
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
		want("start", "Normal ControllerStarted GROUP: all runnables have been started: ")
		r.report(False, "")
		want("stop", "Normal ControllerStopped GROUP: all runnables have returned: ")
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
		want("broken while running", "Normal ControllerStarted GROUP: all runnables have been started: ",
			"Warning ControllerStopped GROUP: broken", "Normal ControllerStarted GROUP: all runnables have been started: ")
		hang.Store(true)
		r.report(False, "")
		r.advance(2 * time.Minute)
		want("a long stop", "Normal ControllerDraining GROUP: runnables have not returned yet",
			"Warning ControllerStuck GROUP: runnables have not returned within 30s; the next start waits for them",
			"Normal ControllerStopped GROUP: all runnables have returned: ")
	}, Events(rec, &corev1.ConfigMap{}))
}

// terminatingCondition is a condition about a CRD that is being deleted.
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

// actionRecorder puts the action of an event before its note. The field Verbose of FakeRecorder does not exist in
// client-go 0.36.
type actionRecorder struct{ *events.FakeRecorder }

func (r actionRecorder) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	r.FakeRecorder.Eventf(regarding, related, eventType, reason, action, action+" "+note, args...)
}

func TestEventReportsTerminatingCRD(t *testing.T) {
	cases := map[string]struct {
		opts []Option
		want string
	}{
		"a group without StopOnTerminating keeps running until the CRD is gone": {nil, "the controller keeps running until the CRD is gone, because objects may have finalizers"},
		"a group with StopOnTerminating stops":                                  {[]Option{StopOnTerminating()}, "the controller stops because of StopOnTerminating, and leaves its finalizers on objects"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := events.NewFakeRecorder(100)
				mgr := newFakeManager()
				close(mgr.elected)
				when := terminatingCondition{switchedCondition{make(chan Status)}, make(chan bool)}
				var starts, ends atomic.Int32
				mustSetUp(t, mgr, when, obedientSetup(&starts, &ends), append(c.opts, Events(actionRecorder{rec}, &corev1.ConfigMap{}), Name("g"))...)
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
					"Normal ControllerStarted Start group g: all runnables have been started: ",
					"Normal ControllerTerminating Terminate group g: the CRD of Widget.v1.example.com is being deleted: " + c.want,
					"Normal ControllerStopped Stop group g: all runnables have returned: ",
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
