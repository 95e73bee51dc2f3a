// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/decision"
)

// healthyModel is a healthy toy cluster of three.
func healthyModel(t *testing.T) (*modelExplorer, modelTrace) {
	t.Helper()
	a := newModelExplorer(t)
	way := a.makeHealthy(3)
	s := way[len(way)-1]
	s.steps = nil
	return a, s
}

// listActions are the effects of a story.
func (s modelTrace) listActions() []string {
	var list []string
	for _, line := range s.steps {
		if _, do, ok := strings.Cut(line, ": clustering."); ok && !strings.HasPrefix(do, "Nothing") {
			list = append(list, do)
		}
	}
	return list
}

func TestSwitchoverStepByStep(t *testing.T) {
	a, s := healthyModel(t)
	s.servers[0].demote = true
	way, _ := a.runUntilQuiet(s)
	want := []string{
		"SetReadOnly{0}", "PromoteInStatus{1 0}", "SetRole{0 }", "StopIO{[1]}", "ConfigurePrimary{1 1}", "StopIO{[2]}",
		"ConfigureReplica{0 1}", "MakeWritable{1 1}", "SetRole{1 primary}", "ConfigureReplica{2 1}", "SetRole{0 replica}", "ClearDemote{0}",
	}
	if diff := cmp.Diff(want, way[len(way)-1].listActions()); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
}

func TestFailoverStepByStep(t *testing.T) {
	a, s := healthyModel(t)
	s.crashServer(0)
	way, _ := a.runUntilQuiet(s)
	want := []string{
		"StopIO{[1 2]}", "PromoteInStatus{1 0}", "SetRole{0 }", "ConfigurePrimary{1 1}", "ConfigureReplica{2 1}",
		"MakeWritable{1 1}", "SetRole{1 primary}",
	}
	if diff := cmp.Diff(want, way[len(way)-1].listActions()); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
}

// Upstream leaves the primary read-only when it is stopped in the middle of a switchover.
func TestStopAtEveryStepOfASwitchover(t *testing.T) {
	for _, hanging := range []bool{false, true} {
		a, s := healthyModel(t)
		s.servers[0].demote, s.servers[0].busy = true, hanging
		way, _ := a.runUntilQuiet(s)
		for i, at := range way {
			end := a.checkStop(at)
			if end.stop.left != "" || end.servers[end.primary].readOnly {
				t.Errorf("step %d: expected nothing left, found %q:\n%s", i, end.stop.left, strings.Join(end.steps, "\n"))
			}
		}
	}
}

func TestSwitchoverThatCannotFinishIsTakenBack(t *testing.T) {
	a, s := healthyModel(t)
	s.servers[0].demote = true
	s, _ = a.runPass(s, undisturbed(0)) // It is read-only now.
	s.servers[1].slow, s.servers[2].slow = true, true
	s.commitDirectly(0) // Something the replicas are slow to apply.
	readOnly := time.Duration(0)
	for range maxPasses {
		var p Plan
		s, p = a.runPass(s, undisturbed(0))
		if !s.servers[0].readOnly {
			if readOnly < switchoverTimeout || readOnly > switchoverTimeout+2*time.Second {
				t.Errorf("expected the primary to be read-only for about %s, found %s", switchoverTimeout, readOnly)
			}
			if !slices.ContainsFunc(p.Events, func(e decision.Event) bool { return e.Reason == "SwitchOverFailed" && e.Warning }) {
				t.Errorf("expected a warning, found %+v", p.Events)
			}
			return
		}
		readOnly += max(p.After, shortestInterval)
	}
	t.Error("expected the primary to become writable again, found it read-only")
}

func TestStopStartStopLosesNothing(t *testing.T) {
	a, s := healthyModel(t)
	s.stopAsked = true
	s, _ = a.runPass(s, undisturbed(0))
	s.stopAsked = false
	s.removePod(2)
	s.stopAsked = true // Before anybody looked.
	s, p := a.runPass(s, undisturbed(0))
	if p.Rule != "stopped" || !s.stop.reached {
		t.Errorf("expected it to be stopped still, found %q", p.Rule)
	}
	s.stopAsked = false
	s, p = a.runPass(s, undisturbed(0))
	if p.Rule != "started" || s.stop.reached {
		t.Errorf("expected it to be started, found %q", p.Rule)
	}
}

func TestManagerThatRestartsWhileStoppedTouchesNothing(t *testing.T) {
	a, s := healthyModel(t)
	s.stopAsked = true
	s, _ = a.runPass(s, undisturbed(0))
	s.servers[0].readOnly = true // Somebody keeps the cluster read-only.
	s.servers[1].io, s.servers[2].sql = false, false
	s.history = modelHistory{}
	way, _ := a.runUntilQuiet(s)
	if acts := way[len(way)-1].listActions(); len(acts) != 0 {
		t.Errorf("expected no acts, found %q", acts)
	}
}

func TestCheckStart(t *testing.T) {
	type finding struct {
		Severity Severity
		Message  string
	}
	for name, row := range map[string]struct {
		in   Observed
		want []finding
	}{
		"a healthy cluster may be started": {healthyCluster(stopAsked, stopReached), nil},
		"foreign transactions refuse": {healthyCluster(withInstance(2, executed("0:1-9,2:1-2"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1-2, which the primary lacks; a start isolates it"},
		}},
		"numbers ahead of the primary refuse": {healthyCluster(withInstance(1, executed("0:1-9:12"))), []finding{
			{Refuse, "instance 1 has " + uuid(0) + ":12, which the primary has yet to number so; it will skip what the primary writes then"},
		}},
		"two writable instances refuse": {healthyCluster(withInstance(1, writable)), []finding{
			{Refuse, "instance 1 can be written to beside the primary; a start makes it read-only"},
		}},
		"a primary that lacks something refuses": {healthyCluster(withInstance(0, readOnly, executed("0:1-8"))), []finding{
			{Refuse, "instance 0, the primary, lacks transactions that replicas have; a start fails over"},
		}},
		"a primary that does not answer refuses": {healthyCluster(withInstance(0, podNotReady)), []finding{
			{Refuse, "instance 0, the primary, does not answer; a start fails over if it is down"},
		}},
		"a read-only primary warns": {healthyCluster(withInstance(0, readOnly)), []finding{
			{Warn, "instance 0, the primary, is read-only; a start makes it writable"},
		}},
		"deleted binary logs refuse": {healthyCluster(withInstance(0, func(s *Instance) { s.Purged = parseTestSet("0:1-7") }), withInstance(1, executed("0:1-5"))), []finding{
			{Refuse, "instance 1 lacks " + parseTestSet("0:6-7").String() + ", which the primary has deleted; it cannot follow, and a start leaves it so"},
		}},
		"threads that are stopped warn, after what refuses": {healthyCluster(withInstance(1, sqlFailed), withInstance(2, sqlStopped, executed("0:1-9,2:1"))), []finding{
			{Refuse, "instance 2 has " + uuid(2) + ":1, which the primary lacks; a start isolates it"},
			{Warn, "instance 1 stopped applying with error 1062; a start leaves it so"},
			{Warn, "instance 2 has its SQL thread stopped; a start lets it go on"},
		}},
		"who does not answer warns":  {healthyCluster(withInstance(1, podNotReady)), []finding{{Warn, "instance 1 does not answer and could not be checked"}}},
		"a status without one warns": {healthyCluster(func(o *Observed) { o.Primary = NoInstance }, withInstance(0, readOnly)), []finding{{Warn, "the status names no primary; a start chooses one"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []finding
			for _, f := range CheckStart(row.in) {
				got = append(got, finding{f.Severity, f.Message})
				if f.Remedy == "" {
					t.Errorf("expected a remedy for %q", f.Message)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
