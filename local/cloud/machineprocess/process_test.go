// SPDX-License-Identifier: Apache-2.0

package machineprocess

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"
	"time"
)

func startSleep(t *testing.T) *Process {
	t.Helper()
	s := NewStarter()
	p, err := s.Start(Command{Argv: []string{"/bin/sh", "-c", "sleep 1000 & wait"}, Marker: "i-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		awaitGone(t, p)
		s.Close()
	})
	return p
}

func awaitGone(t *testing.T, p *Process) {
	t.Helper()
	eventually(t, "the process is gone", p.IsGone)
}

// eventually polls until the condition holds, with a deadline far above the expected duration.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}

func TestOrphanIsKilledOnlyIfItsIdentityMatches(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("start times need /proc")
	}
	p := startSleep(t)
	own := p.Identity()
	for name, other := range map[string]Identity{
		"a process with another start time than recorded: not killed": {PID: own.PID, Started: own.Started + "0"},
		"a record without a start time: the process is not killed":    {PID: own.PID},
		"a record without a process: nothing is killed":               {},
	} {
		if err := other.KillOrphan(t.Context(), "i-1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.hasExited() {
			t.Fatalf("%s: the process was killed", name)
		}
	}
	if err := own.KillOrphan(t.Context(), "i-1"); err != nil {
		t.Error(err)
	}
	awaitGone(t, p)
}

func TestWithoutItsLeaderOnlyMarkedMembersAreOrphans(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("start times need /proc")
	}
	p := startSleep(t)
	eventually(t, "the leader has started its child", func() bool {
		members, _ := groupMembers(p.Identity().PID)
		return len(members) == 2
	})
	leader, err := os.FindProcess(p.Identity().PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if left := p.Identity().findOrphans("i-2"); len(left) != 0 {
		t.Errorf("processes %v of another machine would be killed", left)
	}
	if p.IsGone() {
		t.Error("gone while what it started still runs")
	}
	if err := p.Identity().KillOrphan(t.Context(), "i-1"); err != nil {
		t.Error(err)
	}
	awaitGone(t, p)
}

func TestFailedStartNamesTheCommand(t *testing.T) {
	s := NewStarter()
	defer s.Close()
	for name, c := range map[string]Command{
		"a program that does not exist":  {Argv: []string{"/nowhere/at/all"}},
		"a log file in a missing folder": {Argv: []string{"/bin/sh"}, Log: "/nowhere/at/all/log"},
	} {
		if _, err := s.Start(c); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
