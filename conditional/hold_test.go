// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// heldBy returns the reasons for which a group is held back, from its status and from its metric.
func heldBy(t *testing.T, g *Group) (inStatus, inMetric []string) {
	t.Helper()
	name := g.Status().Name
	for _, h := range g.HeldBack() {
		inStatus = append(inStatus, string(h.Reason))
	}
	found := series(t, name)
	for _, reason := range holdReasons() {
		switch value, isFound := found["held_back "+reason]; {
		case !isFound:
			t.Errorf("the metric of %s has no series for %s", name, reason)
		case value == 1:
			inMetric = append(inMetric, reason)
		}
	}
	return inStatus, inMetric
}

func expectHeldBy(t *testing.T, g *Group, when string, want ...string) {
	t.Helper()
	inStatus, inMetric := heldBy(t, g)
	if diff := cmp.Diff(want, inStatus); diff != "" {
		t.Errorf("%s: the status (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(want, inMetric); diff != "" {
		t.Errorf("%s: the metric (-want +got):\n%s", when, diff)
	}
}

// holdEventsOf returns the recorded events about holds.
func holdEventsOf(rec *events.FakeRecorder) (found []string) {
	for _, line := range recordedEvents(rec) {
		for _, reason := range []string{ControllerHeldBack, ControllerForbidden, ControllerWatchForbidden, ControllerDraining} {
			if strings.Contains(line, " "+reason+" ") {
				found = append(found, line)
			}
		}
	}
	return found
}

// TestWhatHoldsAGroupBackIsShown holds a group back for several reasons, one after the other.
func TestWhatHoldsAGroupBackIsShown(t *testing.T) {
	rec := events.NewFakeRecorder(100)
	var hang atomic.Bool
	setup := func(mgr manager.Manager) error {
		return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			if hang.Load() {
				<-time.After(time.Minute)
			}
			return nil
		}))
	}
	runGroup(t, setup, func(r *groupEnv) {
		wantEvents := func(when string, lines ...string) {
			t.Helper()
			for i, line := range lines {
				lines[i] = strings.Replace(line, "GROUP", "group "+r.group.Status().Name, 1)
			}
			if diff := cmp.Diff(lines, holdEventsOf(rec)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		missing := Status{State: False, Reason: ForbiddenReason, Message: "no permission to list secrets"}
		r.when.says <- missing
		synctest.Wait()
		expectHeldBy(t, r.group, "a right is missing", string(HeldByRights))
		wantEvents("a standby records nothing")
		r.elect()
		wantEvents("a right is missing", "Warning ControllerForbidden GROUP: no permission to list secrets")

		r.report(True, "a")
		expectHeldBy(t, r.group, "running")
		r.report(False, "")
		expectHeldBy(t, r.group, "unwanted")
		r.report(True, "a")
		expectHeldBy(t, r.group, "too many starts", string(HeldByRestartLimit))
		wantEvents("too many starts", "Warning ControllerHeldBack GROUP: the restart limit delays the next start until 2000-01-01T00:00:30Z")

		r.advance(30 * time.Second)
		expectHeldBy(t, r.group, "the pause is over")
		hang.Store(true)
		r.report(False, "")
		expectHeldBy(t, r.group, "draining", string(HeldByDrain))
		wantEvents("a stop that may be short")
		r.advance(longDrain)
		wantEvents("a long stop", "Normal ControllerDraining GROUP: runnables have not returned yet")
		r.advance(30 * time.Second)
		r.expectPhase(Stuck)
		expectHeldBy(t, r.group, "stuck", string(HeldByDrain))
		r.advance(time.Minute)
		expectHeldBy(t, r.group, "stopped")
		wantEvents("stopped")
	}, RestartLimit(1, wait.Backoff{Duration: 30 * time.Second}), Events(rec, &corev1.ConfigMap{}))
}

// TestEventsAboutHoldsAreFew lets a condition flap for ten minutes, with a right that is repeatedly granted and
// revoked.
func TestEventsAboutHoldsAreFew(t *testing.T) {
	rec := events.NewFakeRecorder(10000)
	var starts, ends atomic.Int32
	runGroup(t, obedientSetup(&starts, &ends), func(r *groupEnv) {
		r.elect()
		for range 10 * 60 * 10 {
			r.report(True, "a")
			r.when.says <- Status{State: False, Reason: ForbiddenReason, Message: "no permission to list secrets"}
			r.advance(100 * time.Millisecond)
		}
		counts := map[string]int{}
		for _, line := range holdEventsOf(rec) {
			counts[strings.Fields(line)[1]]++
		}
		if diff := cmp.Diff(map[string]int{ControllerHeldBack: 10, ControllerForbidden: 10}, counts); diff != "" {
			t.Errorf("events in ten minutes (-want +got):\n%s", diff)
		}
	}, Events(rec, &corev1.ConfigMap{}))
}

// TestEventsAboutEachCRD passes holds to findDue at the given seconds, and compares the seconds at which an event is
// due. An empty message means that there is no hold.
func TestEventsAboutEachCRD(t *testing.T) {
	type shown struct {
		at           int
		crd, message string
	}
	for name, row := range map[string]struct {
		shown []shown
		want  []int
	}{
		"a hold whose message does not change: one event immediately":  {[]shown{{0, "a", "until 10"}, {5, "a", "until 10"}, {70, "a", "until 10"}}, []int{0}},
		"a new message about the same CRD: next event after a minute":  {[]shown{{0, "a", "until 10"}, {10, "a", ""}, {15, "a", "until 30"}, {61, "a", "until 90"}}, []int{0, 61}},
		"a hold that ends and begins again: next event after a minute": {[]shown{{0, "a", "no right"}, {10, "a", ""}, {15, "a", "no right"}, {61, "a", "no right"}}, []int{0, 61}},
		"a new message about a new CRD: next event immediately":        {[]shown{{0, "a", "until 10"}, {10, "a", ""}, {15, "b", "until 30"}, {30, "c", "until 90"}}, []int{0, 15, 30}},
		"a new CRD with the same message: no further event":            {[]shown{{0, "a", "until 10"}, {1, "b", "until 10"}, {2, "c", "until 10"}}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			begin, recorded := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), holdEvents{}
			var got []int
			for _, s := range row.shown {
				var current []holdEvent
				if s.message != "" {
					current = append(current, newHoldEvent(Hold{HeldByRestartLimit, s.message}, Dormant))
				}
				for range recorded.findDue(current, types.UID(s.crd), begin.Add(time.Duration(s.at)*time.Second)) {
					got = append(got, s.at)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("seconds of events (-want +got):\n%s", diff)
			}
		})
	}
}
