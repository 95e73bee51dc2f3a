// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// TestEveryStateAndVerb writes the whole table out: the empty state means refused.
func TestEveryStateAndVerb(t *testing.T) {
	table := map[powerState]map[powerVerb]powerState{
		pending:      {start: pending, stop: "", terminate: shuttingDown},
		running:      {start: running, stop: stopping, terminate: shuttingDown},
		stopping:     {start: "", stop: stopping, terminate: shuttingDown},
		stopped:      {start: pending, stop: stopped, terminate: terminated},
		shuttingDown: {start: "", stop: "", terminate: shuttingDown},
		terminated:   {start: "", stop: "", terminate: terminated},
	}
	for from, verbs := range table {
		for v, want := range verbs {
			got, ok := stateAfterRequest(from, v)
			if ok != (want != "") || (ok && got != want) {
				t.Errorf("%s a %s instance: got %q, %v; want %q", v, from, got, ok, want)
			}
		}
	}
}

func TestEveryInstanceAndVerb(t *testing.T) {
	second := time.Second
	cloud := powerLatencies{Start: &second, Stop: new(2 * time.Second)}
	then := time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)
	now := then.Add(time.Minute)
	for _, from := range []powerState{pending, running, stopping, stopped, shuttingDown, terminated} {
		for _, v := range []powerVerb{start, stop, terminate} {
			before := instance{ID: "i-1", State: from, ChangedAt: then, LaunchTime: then}
			after, ok := before.afterRequest(v, now, cloud)
			to, _ := stateAfterRequest(from, v)
			if !ok || to == from {
				if !reflect.DeepEqual(after, before) {
					t.Errorf("%s a %s instance changed it to %+v", v, from, after)
				}
				continue
			}
			if after.State != to || !after.ChangedAt.Equal(now) || after.Reason == nil {
				t.Errorf("%s a %s instance: %+v, reason %+v", v, from, after, after.Reason)
			}
			wantDue := map[powerState]time.Duration{pending: second, stopping: 2 * second, shuttingDown: 2 * second, terminated: time.Hour}[to]
			if !after.Due.Equal(now.Add(wantDue)) {
				t.Errorf("%s a %s instance is due at %s, want after %s", v, from, after.Due, wantDue)
			}
			if wantLaunch := v == start; after.LaunchTime.Equal(now) != wantLaunch {
				t.Errorf("%s a %s instance: launch time %s", v, from, after.LaunchTime)
			}
			if want := "User initiated (2026-11-20 10:01:00 GMT)"; v != start && after.TransitionReason != want {
				t.Errorf("%s a %s instance: reason %q, want %q", v, from, after.TransitionReason, want)
			}
		}
	}
}

func TestEveryStateElapses(t *testing.T) {
	table := map[powerState]powerState{
		pending: running, stopping: stopped, shuttingDown: terminated,
		running: running, stopped: stopped, terminated: terminated,
	}
	codes := map[powerState]int{pending: 0, running: 16, shuttingDown: 32, terminated: 48, stopping: 64, stopped: 80}
	for from, want := range table {
		if got := stateAfterLatency(from); got != want {
			t.Errorf("%s elapses to %s, want %s", from, got, want)
		}
		if from.ec2Code() != codes[from] {
			t.Errorf("%s has code %d, want %d", from, from.ec2Code(), codes[from])
		}
	}
}

func TestTheReasonOfAStopStaysAndThatOfAStartGoes(t *testing.T) {
	now := time.Now()
	halting, _ := instance{State: running}.afterRequest(stop, now, powerLatencies{})
	if halted := halting.afterLatency(now); halted.State != stopped || halted.Reason != halting.Reason || halted.TransitionReason == "" || !halted.Due.IsZero() {
		t.Errorf("stopped instance: %+v", halted)
	}
	coming, _ := instance{State: stopped, TransitionReason: "old"}.afterRequest(start, now, powerLatencies{})
	if up := coming.afterLatency(now); up.State != running || up.Reason != nil || up.TransitionReason != "" {
		t.Errorf("running instance: %+v", up)
	}
}

func TestAnInstancesOwnLatencyIsStrongerThanTheClouds(t *testing.T) {
	cloud := powerLatencies{Start: new(time.Second), Stop: new(time.Second)}
	own := cloud.overriddenBy(powerLatencies{Stop: new(time.Minute)})
	if own.forState(pending) != time.Second || own.forState(stopping) != time.Minute || own.forState(shuttingDown) != time.Minute || own.forState(running) != 0 {
		t.Errorf("start %s, stop %s, terminate %s", own.forState(pending), own.forState(stopping), own.forState(shuttingDown))
	}
}

func TestEveryAnswerIsOnTheDisk(t *testing.T) {
	r := newEnv(t, Config{StopLatency: time.Hour})
	check := func(step string) {
		t.Helper()
		r.cloud.mu.Lock()
		defer r.cloud.mu.Unlock()
		saved, err := r.cloud.store.loadState()
		expectNoError(t, err)
		for id, i := range r.cloud.state.Instances {
			if got := saved.Instances[id]; got.State != i.State || !got.Due.Equal(i.Due) || !reflect.DeepEqual(got.Tags, i.Tags) {
				t.Errorf("%s: %+v on the disk, want %+v", step, got, i)
			}
		}
		if !reflect.DeepEqual(saved.Reservations, r.cloud.state.Reservations) {
			t.Errorf("%s: %+v on the disk", step, saved.Reservations)
		}
	}
	id := r.launchInstances(1)[0]
	check("run")
	r.awaitState(id, running)
	check("running")
	r.call("CreateTags", "ResourceId.1", id, "Tag.1.Key", "a", "Tag.1.Value", "b")
	check("tag")
	r.call("StopInstances", "InstanceId.1", id)
	check("stop")
}

func TestADiskThatRefusesFailsTheCallAndChangesNothing(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	// A folder in the way of the next file fails for root too.
	inTheWay := r.cloud.store.filePath() + ".next"
	expectNoError(t, os.Mkdir(inTheWay, 0o700))
	if got := r.call("StopInstances", "InstanceId.1", id); got.Code != "InternalError" {
		t.Errorf("answered %+v", got)
	}
	if got := r.describeInstance(id); got.State != "running" {
		t.Errorf("instance %+v", got)
	}
	expectNoError(t, os.Remove(inTheWay))
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
}

func TestConfigsAndFoldersThatCannotWorkAreRefused(t *testing.T) {
	broken := t.TempDir()
	expectNoError(t, os.WriteFile(filepath.Join(broken, "cloud.json"), []byte("{"), 0o600))
	for name, config := range map[string]Config{
		"no folder":            {},
		"a negative latency":   {Dir: t.TempDir(), StopLatency: -1},
		"too large a page":     {Dir: t.TempDir(), PageSize: 1001},
		"a rate without burst": {Dir: t.TempDir(), RatePerSecond: 1},
		"a broken state":       {Dir: broken},
	} {
		if c, err := New(config); err == nil {
			t.Errorf("%s: opened", name)
			_ = c.Close()
		}
	}
}
