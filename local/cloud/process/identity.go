// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Identity names one process for all time.
type Identity struct {
	// PID is the process id, which is also the id of its group.
	PID int `json:"pid"`
	// Started is the boot and the tick of the start; empty where there is no /proc.
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

// readIdentity reads the start time of a pid, a zombie's too; it is empty for a pid that does not exist.
func readIdentity(pid int) Identity {
	stat, ok := readStat(pid)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if !ok || err != nil {
		return Identity{PID: pid}
	}
	return Identity{PID: pid, Started: fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), stat.Starttime)}
}

// groupMembers lists the living members of a process group; zombies do not count. The second value is false where the
// platform does not show them.
func groupMembers(pgid int) ([]int, bool) {
	all, err := procfs.AllProcs()
	if err != nil || len(all) == 0 {
		return nil, false
	}
	var members []int
	for _, p := range all {
		if stat, ok := readStat(p.PID); ok && stat.PGRP == pgid && stat.State != "Z" && stat.State != "X" {
			members = append(members, p.PID)
		}
	}
	return members, true
}

func hasMarker(pid int, marker string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	environ, err := p.Environ()
	return err == nil && slices.Contains(environ, MarkerName+"="+marker)
}

func readStat(pid int) (procfs.ProcStat, bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, false
	}
	stat, err := p.Stat()
	return stat, err == nil
}
