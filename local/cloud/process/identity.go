// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity names one process for all time.
type Identity struct {
	// PID is the process id, which is also the id of its group.
	PID int `json:"pid"`
	// Started is the boot and the tick of the start; empty where /proc does not tell.
	Started string `json:"started,omitempty"`
}

// KillOrphan kills what is left of the process and its group, and returns when it is gone.
// Without a start time it kills nothing; a process with the same pid and another start time is left alone; when the
// leader is gone, only members of its group that carry the marker are killed.
func (i Identity) KillOrphan(ctx context.Context, marker string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := i.findOrphans(marker)
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			// A process that has just ended by itself is what was wanted.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the killed processes %v: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

func (i Identity) findOrphans(marker string) []int {
	if i.Started == "" {
		return nil
	}
	members, _ := groupMembers(i.PID)
	switch readIdentity(i.PID).Started {
	case i.Started:
		return members
	case "":
		return slices.DeleteFunc(members, func(pid int) bool { return !hasMarker(pid, marker) })
	default:
		return nil
	}
}

// readIdentity reads the start time of a pid, a zombie's too; it is empty for a pid nobody has.
func readIdentity(pid int) Identity {
	stat, ok := readStat(pid)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if !ok || err != nil {
		return Identity{PID: pid}
	}
	return Identity{PID: pid, Started: strings.TrimSpace(string(boot)) + "/" + stat.started}
}

// groupMembers lists the living members of a process group; zombies do not count. The second value is false where the
// platform cannot tell.
func groupMembers(pgid int) ([]int, bool) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(entries) == 0 {
		return nil, false
	}
	var members []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil {
			continue
		}
		if stat, ok := readStat(pid); ok && stat.group == strconv.Itoa(pgid) && !stat.isDead() {
			members = append(members, pid)
		}
	}
	return members, true
}

func hasMarker(pid int, marker string) bool {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), MarkerName+"="+marker)
}

type processStat struct{ state, group, started string }

func (s processStat) isDead() bool { return s.state == "Z" || s.state == "X" }

// readStat reads the third, fifth and 22nd field of /proc/<pid>/stat. The second, the name in brackets, may hold
// spaces and brackets itself.
func readStat(pid int) (processStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processStat{}, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return processStat{}, false
	}
	return processStat{state: fields[0], group: fields[2], started: fields[19]}, true
}
