// SPDX-License-Identifier: Apache-2.0

// Package process runs the commands that stand for the machines of the simulated cloud.
//
// Each command leads its own process group, so that a machine is ended with everything it started. A process is
// remembered over a crash of the cloud by its Identity: pid and start time, so that a reused pid is never killed.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// MarkerName is the environment variable that marks a process, and all it starts, as those of one machine.
const MarkerName = "TORPOR_CLOUD_INSTANCE"

// Command is what to run.
type Command struct {
	// Argv is the program and its arguments; it is never empty.
	Argv []string
	// Env is added to the environment of the cloud.
	Env map[string]string
	// Log is the file both outputs are appended to; empty drops them.
	Log string
	// Marker is the value of MarkerName.
	Marker string
}

// Process is a started command.
type Process struct {
	identity Identity
	exited   chan struct{}
}

// Start runs the command. The error names the program.
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
	// The kernel kills a child with the thread that started it, so that thread must live on.
	if err := s.runOnThread(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	p := &Process{identity: readIdentity(cmd.Process.Pid), exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		// How a machine ended does not matter: that it ended is all the cloud shows.
		_ = cmd.Wait()
	}()
	return p, nil
}

// Identity names the process for a later life of the cloud.
func (p *Process) Identity() Identity { return p.identity }

// Exited is closed when the command itself has ended and is reaped; what it started may still run.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Terminate asks the whole process group to end.
func (p *Process) Terminate() { _ = p.signalGroup(syscall.SIGTERM) }

// Kill ends the whole process group without asking.
func (p *Process) Kill() { _ = p.signalGroup(syscall.SIGKILL) }

// IsGone reports whether the command is reaped and nothing of its process group runs any more.
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
	// Once the leader is reaped, a process with its pid is a stranger.
	if p.hasExited() && readIdentity(p.identity.PID).Started != "" {
		return syscall.ESRCH
	}
	return syscall.Kill(-p.identity.PID, sig)
}
