// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

// TestEveryStateAndVerb tests all combinations; an empty state means that the verb is refused.
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

func TestStoppedInstanceKeepsItsTransitionReason(t *testing.T) {
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

func TestInstanceLatencyOverridesThatOfTheCloud(t *testing.T) {
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

func TestFailedDiskWriteFailsTheCall(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	// Nothing can be appended to the file now, and a folder in place of the next file makes the rewrite fail even
	// for root.
	expectNoError(t, r.cloud.store.file.Close())
	inTheWay := r.cloud.store.filePath() + ".next"
	expectNoError(t, os.Mkdir(inTheWay, 0o700))
	for range 2 {
		if got := r.call("StopInstances", "InstanceId.1", id); got.Code != "InternalError" {
			t.Errorf("answered %+v", got)
		}
	}
	if got := r.describeInstance(id); got.State != "running" {
		t.Errorf("instance %+v", got)
	}
	expectNoError(t, os.Remove(inTheWay))
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
}

func TestStateFileIsReadUpToTheLastWholeChange(t *testing.T) {
	dir := t.TempDir()
	c, err := New(Config{Dir: dir})
	expectNoError(t, err)
	r := &env{t: t, cloud: c}
	file := c.store.filePath()
	expectNoError(t, c.Close())
	whole, err := os.ReadFile(file)
	expectNoError(t, err)
	change := func(name string) string {
		line, err := json.Marshal(stateChange{
			Reservation: &reservation{ID: name, Sequence: 1, Instances: []string{"i-1"}}, Instances: []instance{{ID: "i-1", State: stopped, Type: name}},
		})
		expectNoError(r.t, err)
		return string(line)
	}
	for name, row := range map[string]struct {
		added  string
		want   int
		broken bool
	}{
		"no change after the base: only the base is read":    {"", 0, false},
		"complete line: the change is read":                  {change("a") + "\n", 1, false},
		"truncated last line: the change is dropped":         {change("a")[:20], 0, false},
		"last line without a newline: the change is dropped": {change("a"), 0, false},
		"malformed line before a valid one: an error":        {"{]\n" + change("a") + "\n", 0, true},
	} {
		expectNoError(t, os.WriteFile(file, append(slices.Clip(whole), row.added...), 0o600))
		state, err := (&stateStore{dir: dir}).loadState()
		if (err != nil) != row.broken || err == nil && len(state.Instances) != row.want {
			t.Errorf("%s: %v, state %+v", name, err, state)
		}
	}
}

func TestStateFileIsRewrittenBeforeItGrowsTooLarge(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.cloud.store.addedBytes = minRewriteBytes + 1
	r.call("CreateTags", "ResourceId.1", id, "Tag.1.Key", "a", "Tag.1.Value", "b")
	if added := r.cloud.store.addedBytes; added > 2_000 {
		t.Errorf("%d bytes behind the base", added)
	}
	saved, err := r.cloud.store.loadState()
	expectNoError(t, err)
	if saved.Instances[id].Tags["a"] != "b" {
		t.Errorf("on the disk: %+v", saved.Instances[id])
	}
}

func TestConfigsAndFoldersThatCannotWorkAreRefused(t *testing.T) {
	broken := t.TempDir()
	expectNoError(t, os.WriteFile(filepath.Join(broken, "cloud.json"), []byte("{"), 0o600))
	for name, config := range map[string]Config{
		"configuration without a folder: refused":     {},
		"negative latency: refused":                   {Dir: t.TempDir(), StopLatency: -1},
		"page size above the maximum: refused":        {Dir: t.TempDir(), PageSize: 1001},
		"request rate without a burst: refused":       {Dir: t.TempDir(), RatePerSecond: 1},
		"folder with a malformed state file: refused": {Dir: broken},
	} {
		if c, err := New(config); err == nil {
			t.Errorf("%s: opened", name)
			_ = c.Close()
		}
	}
}

func (r *env) addFault(f map[string]any) {
	r.t.Helper()
	if status := r.callAdmin(http.MethodPost, "faults", f, nil); status != http.StatusNoContent {
		r.t.Fatalf("fault %v answered %d", f, status)
	}
}

func TestFaultsOfCalls(t *testing.T) {
	r := newEnv(t, Config{})
	ids := r.launchInstances(2)
	r.awaitState(ids[0], running)
	r.awaitState(ids[1], running)
	for code, status := range map[string]int{
		"RequestLimitExceeded": 503, "InsufficientInstanceCapacity": 500, "AuthFailure": 403,
		"UnauthorizedOperation": 403, "InternalError": 500, "SomethingElse": 400,
	} {
		r.addFault(map[string]any{"action": "StopInstances", "code": code, "times": 1})
		if got := r.call("StopInstances", "InstanceId.1", ids[0]); got.Code != code || got.status != status {
			t.Errorf("answered %d %s, want %d %s", got.status, got.Code, status, code)
		}
	}
	if got := r.describeInstance(ids[0]); got.State != "running" {
		t.Errorf("a call that failed changed the instance: %+v", got)
	}

	r.addFault(map[string]any{"action": "DescribeInstances", "instanceIDs": []string{ids[1]}, "code": "Odd", "message": "why", "httpStatus": 418, "times": 2})
	r.describeInstance(ids[0])
	for range 2 {
		if got := r.call("DescribeInstances", "InstanceId.1", ids[1]); got.Code != "Odd" || got.Message != "why" || got.status != http.StatusTeapot {
			t.Errorf("answered %+v", got)
		}
	}
	r.describeInstance(ids[1])

	r.addFault(map[string]any{"code": "InternalError"})
	for range 3 {
		if got := r.call("DescribeInstances"); got.Code != "InternalError" {
			t.Errorf("answered %+v", got)
		}
	}
	r.callAdmin(http.MethodDelete, "faults", nil, nil)
	r.describeInstance(ids[1])
}

func TestALateAnswerIsStillDone(t *testing.T) {
	const delay = 200 * time.Millisecond
	r := newEnv(t, Config{StopLatency: time.Hour})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.addFault(map[string]any{"action": "StopInstances", "delay": delay.String(), "times": 1})
	if got := r.call("StopInstances", "InstanceId.1", id); got.status != http.StatusOK {
		t.Errorf("answered %+v", got)
	}
	if late := time.Since(r.listInstances()[id].ChangedAt); late < delay {
		t.Errorf("answered %s after the work was done, want %s", late, delay)
	}
}

func TestACallerThatLeavesDoesNotUndoItsCall(t *testing.T) {
	r := newEnv(t, Config{StopLatency: time.Hour})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.addFault(map[string]any{"action": "StopInstances", "delay": "1h", "times": 1})
	ctx, leave := context.WithCancel(t.Context())
	form := "Action=StopInstances&InstanceId.1=" + id
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/?"+form, nil)
	expectNoError(t, err)
	request.Header.Set("Authorization", authorized)
	left := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		left <- err
	}()
	r.awaitState(id, stopping)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller saw %v", err)
	}
}

func TestStuckTransitionsEndWhenTheFaultsAreCleared(t *testing.T) {
	r := newEnv(t, Config{})
	r.addFault(map[string]any{"kind": "stuckPending"})
	id := r.launchInstances(1)[0]
	r.cloud.advanceAll(time.Now().Add(time.Hour))
	if got := r.describeInstance(id); got.State != "pending" {
		t.Errorf("instance %+v", got)
	}
	r.callAdmin(http.MethodDelete, "faults", nil, nil)
	r.awaitState(id, running)

	other := r.launchInstances(1)[0]
	r.awaitState(other, running)
	r.addFault(map[string]any{"kind": "stuckStopping", "instanceIDs": []string{id}})
	r.call("StopInstances", "InstanceId.1", id, "InstanceId.2", other)
	r.awaitState(other, stopped)
	r.cloud.advanceAll(time.Now().Add(time.Hour))
	if got := r.describeInstance(id); got.State != "stopping" {
		t.Errorf("instance %+v", got)
	}
	r.callAdmin(http.MethodDelete, "faults", nil, nil)
	r.awaitState(id, stopped)
}

func TestALostStartFallsBack(t *testing.T) {
	r := newEnv(t, Config{})
	id := r.launchInstances(1)[0]
	r.awaitState(id, running)
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
	r.addFault(map[string]any{"kind": "lostStart", "instanceIDs": []string{id}, "times": 1})
	if got := r.call("StartInstances", "InstanceId.1", id).Instances[0]; got.Current != "pending" {
		t.Errorf("start answered %+v", got)
	}
	if got := r.awaitState(id, stopped); got.ReasonCode != "Server.InsufficientInstanceCapacity" {
		t.Errorf("instance %+v", got)
	}
	r.call("StartInstances", "InstanceId.1", id)
	r.awaitState(id, running)
}

func TestInvalidFaultsAreRefused(t *testing.T) {
	r := newEnv(t, Config{})
	for name, f := range map[string]any{
		"fault without an effect":                     map[string]any{"action": "StopInstances"},
		"fault of an unknown kind":                    map[string]any{"kind": "flood"},
		"fault of an unknown action":                  map[string]any{"action": "Reboot", "code": "InternalError"},
		"fault with an unknown field":                 map[string]any{"cod": "InternalError"},
		"fault with an HTTP status but no error code": map[string]any{"httpStatus": 500, "delay": "1s"},
		"fault with an HTTP status of success":        map[string]any{"httpStatus": 200, "code": "InternalError"},
		"fault with a negative number of times":       map[string]any{"code": "InternalError", "times": -1},
		"stuck transition with an error code":         map[string]any{"kind": "stuckPending", "code": "InternalError"},
		"stuck transition with a number of times":     map[string]any{"kind": "stuckPending", "times": 1},
		"lost start with an action":                   map[string]any{"kind": "lostStart", "action": "StartInstances"},
		"list instead of a fault":                     []string{},
	} {
		var answer struct{ Error string }
		if status := r.callAdmin(http.MethodPost, "faults", f, &answer); status != http.StatusBadRequest || answer.Error == "" {
			t.Errorf("%s answered %d %q", name, status, answer.Error)
		}
	}
	if len(r.cloud.faults) != 0 {
		t.Errorf("faults %+v", r.cloud.faults)
	}
}

func TestCallsAreCounted(t *testing.T) {
	r := newEnv(t, Config{})
	r.launchInstances(1)
	r.call("DescribeInstances")
	r.call("DescribeInstances", "InstanceId.1", "i-no")
	r.callAs("", "DescribeInstances")
	r.call("Reboot")
	var got map[string]int
	r.callAdmin(http.MethodGet, "calls", nil, &got)
	want := map[string]int{"RunInstances": 1, "DescribeInstances": 3, "DescribeInstances.errors": 2, "(unknown)": 1, "(unknown).errors": 1}
	if len(got) != len(want) {
		t.Errorf("calls %v, want %v", got, want)
	}
	for name, count := range want {
		if got[name] != count {
			t.Errorf("calls %v, want %v", got, want)
		}
	}
	r.callAdmin(http.MethodDelete, "calls", nil, nil)
	clear(got)
	if r.callAdmin(http.MethodGet, "calls", nil, &got); len(got) != 0 {
		t.Errorf("calls %v after the reset", got)
	}
}

func TestLatenciesChangeWhileTheCloudRuns(t *testing.T) {
	dir := t.TempDir()
	r := newEnv(t, Config{Dir: dir, StartLatency: time.Hour})
	slow := r.launchInstances(1)[0]
	r.callAdmin(http.MethodPost, "latency", map[string]any{"start": "0s", "stop": "1h"}, nil)
	ids := r.launchInstances(2)
	r.awaitState(ids[0], running)
	r.awaitState(ids[1], running)
	if got := r.describeInstance(slow); got.State != "pending" {
		t.Errorf("the transition under way changed: %+v", got)
	}
	r.callAdmin(http.MethodPost, "latency", map[string]any{"stop": "0s", "instanceIDs": ids[:1]}, nil)
	r.call("StopInstances", "InstanceId.1", ids[0], "InstanceId.2", ids[1])
	r.awaitState(ids[0], stopped)
	if got := r.describeInstance(ids[1]); got.State != "stopping" {
		t.Errorf("another instance has the override: %+v", got)
	}
	for name, body := range map[string]map[string]any{
		"negative latency: refused":                {"stop": "-1s"},
		"latency that is not a duration: refused":  {"stop": "soon"},
		"latency for an unknown instance: refused": {"stop": "1s", "instanceIDs": []string{"i-01234567"}},
	} {
		var answer struct{ Error string }
		if status := r.callAdmin(http.MethodPost, "latency", body, &answer); status != http.StatusBadRequest || answer.Error == "" {
			t.Errorf("%s answered %d %q", name, status, answer.Error)
		}
	}
}
