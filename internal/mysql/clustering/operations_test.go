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

// listActions are the actions of a trace.
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

// TestStopAtEveryStepOfASwitchover covers defect 3 of the list in docs/clustering.md at every step.
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
