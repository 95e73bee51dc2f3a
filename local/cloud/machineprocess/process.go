// SPDX-License-Identifier: Apache-2.0

// Package machineprocess runs the commands that represent the machines of the simulated cloud.
//
// Each command leads its own process group, so that a machine ends with all processes that it has started. An Identity
// (pid and start time) identifies a process after a crash of the cloud, so that a process that has reused the pid is
// never killed.
package machineprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// MarkerName is the environment variable that identifies the machine to which a process and its descendants belong.
const MarkerName = "TORPOR_CLOUD_INSTANCE"

// Command is a command to run.
type Command struct {
	// Argv is the program and its arguments; it is never empty.
	Argv []string
	// Env is added to the environment of the cloud.
	Env map[string]string
	// Log is the file to which standard output and standard error are appended; empty drops them.
	Log string
	// Marker is the value of MarkerName.
	Marker string
}

// Process is a started command.
type Process struct {
	identity Identity
	exited   chan struct{}
}

// Start runs the command. The error contains the name of the program.
func (s *Starter) Start(c Command) (*Process, error) {
	cmd := exec.CommandContext(context.Background(), c.Argv[0], c.Argv[1:]...)
	cmd.SysProcAttr = groupAttributes()
	cmd.Env = append(os.Environ(), MarkerName+"="+c.Marker)
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if c.Log != "" {
		log, err := os.OpenFile(c.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the log of %s: %w", c.Argv[0], err)
		}
		defer func() { _ = log.Close() }()
		cmd.Stdout, cmd.Stderr = log, log
	}
	// The kernel kills a child when the thread that started it ends, so that thread must not end.
	if err := s.runOnThread(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	p := &Process{identity: readIdentity(cmd.Process.Pid), exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		// The exit status is ignored, because the cloud only reports that the machine has ended.
		_ = cmd.Wait()
	}()
	return p, nil
}

// Identity identifies the process for a later process of the cloud.
func (p *Process) Identity() Identity { return p.identity }

// Exited returns a channel that is closed when the command itself has ended and is reaped; its children may still
// run.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Terminate sends SIGTERM to the whole process group.
func (p *Process) Terminate() { _ = p.signalGroup(syscall.SIGTERM) }

// Kill sends SIGKILL to the whole process group.
func (p *Process) Kill() { _ = p.signalGroup(syscall.SIGKILL) }

// IsGone reports whether the command is reaped and its whole process group has ended.
func (p *Process) IsGone() bool {
	if !p.hasExited() {
		return false
	}
	if errors.Is(p.signalGroup(0), syscall.ESRCH) {
		return true
	}
	left, known := groupMembers(p.identity.PID)
	return known && len(left) == 0
}

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *Process) signalGroup(sig syscall.Signal) error {
	// Once the leader is reaped, a process with its pid is another process.
	if p.hasExited() && readIdentity(p.identity.PID).Started != "" {
		return syscall.ESRCH
	}
	return syscall.Kill(-p.identity.PID, sig)
}

// Starter starts every process from one thread that lives as long as the Starter: on Linux a child gets its death
// signal when the thread that started it ends, not when the whole parent ends.
type Starter struct {
	work chan func()
}

// NewStarter returns a starter; the caller closes it.
func NewStarter() *Starter {
	s := &Starter{work: make(chan func())}
	go s.runStarts()
	return s
}

// Close ends the thread and so, on Linux, kills all running children. Start must not be called after it.
func (s *Starter) Close() { close(s.work) }

func (s *Starter) runStarts() {
	// The thread is never unlocked, so it ends with the goroutine.
	runtime.LockOSThread()
	for start := range s.work {
		start()
	}
}

func (s *Starter) runOnThread(start func() error) error {
	answer := make(chan error, 1)
	s.work <- func() { answer <- start() }
	return <-answer
}

// Identity identifies one process, even after the reuse of its pid.
type Identity struct {
	// PID is the process id, which is also the id of its group.
	PID int `json:"pid"`
	// Started consists of the boot id and the clock tick of the start; empty without /proc.
	Started string `json:"started,omitempty"`
}

// KillOrphan kills the process and its group, if they still run, and returns when they are gone. Without a start
// time it kills nothing, nor does it kill a process with the same pid and another start time. If the leader has
// ended, it kills only the members of its group with the marker.
func (i Identity) KillOrphan(ctx context.Context, marker string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := i.findOrphans(marker)
		if len(left) == 0 {
			return nil
		}
		for _, pid := range left {
			// An error means that the process has just ended.
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

// readIdentity reads the start time of a process, even of a zombie. The start time is empty if the process does not
// exist.
func readIdentity(pid int) Identity {
	stat, ok := readStat(pid)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if !ok || err != nil {
		return Identity{PID: pid}
	}
	return Identity{PID: pid, Started: fmt.Sprintf("%s/%d", strings.TrimSpace(string(boot)), stat.Starttime)}
}

// groupMembers lists the members of a process group, without zombies. The second result is false on platforms that
// do not show them.
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
