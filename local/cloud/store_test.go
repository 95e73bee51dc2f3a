// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestEveryAnswerIsOnTheDisk(t *testing.T) {
	r := newEnv(t, Config{StopLatency: time.Hour})
	check := func(step string) {
		t.Helper()
		r.cloud.mu.Lock()
		defer r.cloud.mu.Unlock()
		saved, err := r.cloud.store.loadState()
		if err != nil {
			t.Fatal(err)
		}
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
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := r.call("StopInstances", "InstanceId.1", id); got.Code != "InternalError" {
		t.Errorf("answered %+v", got)
	}
	if got := r.describeInstance(id); got.State != "running" {
		t.Errorf("instance %+v", got)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	r.call("StopInstances", "InstanceId.1", id)
	r.awaitState(id, stopped)
}

func TestConfigsAndFoldersThatCannotWorkAreRefused(t *testing.T) {
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "cloud.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
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
