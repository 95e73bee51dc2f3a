// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// stopTimeout is how long a process may take to end when it is asked to.
	stopTimeout = 20 * time.Second
	// pipeTimeout bounds the wait for grandchildren that keep the output open.
	pipeTimeout = 5 * time.Second
)

// Process is a program that ends with the test, whatever happens to the test. What it writes is shown if the test fails.
type Process struct {
	// Name of the program's file, for people.
	Name string

	cmd    *exec.Cmd
	output LogBuffer
	done   chan struct{}
}

// StartProcess starts a program. env, as "NAME=value", comes on top of the test's own environment.
func StartProcess(t testing.TB, path string, args, env []string) *Process {
	t.Helper()
	// The test's context ends before its cleanups, and those end the process with patience.
	ctx := context.WithoutCancel(t.Context())
	p := &Process{Name: filepath.Base(path), cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr, p.cmd.WaitDelay = dieWithParent(), pipeTimeout
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // Its log and ExitCode show how it ended.
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			t.Logf("%s %s said last:\n%s", p.Name, strings.Join(args, " "), p.output.LastLines(shownLines))
		}
	})
	return p
}

// KillAtOnce kills the process and returns when it is gone.
func (p *Process) KillAtOnce(t testing.TB) {
	t.Helper()
	p.sendSignal(t, syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end and returns when it is gone. One that has ended already is no error.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.sendSignal(t, syscall.SIGTERM)
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		t.Errorf("%s did not end within %s after SIGTERM; it is killed", p.Name, stopTimeout)
		p.KillAtOnce(t)
	}
}

// ExitChannel is closed when the process has ended.
func (p *Process) ExitChannel() <-chan struct{} { return p.done }

// ExitCode returns the exit code of a process that has ended, -1 for one that was killed.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LastOutput returns what the process has written to its output and error output so far.
func (p *Process) LastOutput() string { return p.output.String() }

// WaitForLine waits for a line that starts with the prefix and returns what follows it, without blanks around.
func (p *Process) WaitForLine(t testing.TB, prefix string) string {
	t.Helper()
	var rest string
	Eventually(t, fmt.Sprintf("%s says %q", p.Name, prefix), func() error {
		for line := range strings.Lines(p.LastOutput()) {
			found, ok := strings.CutPrefix(line, prefix)
			// Without its end, a line may be only half written.
			if ok && strings.HasSuffix(line, "\n") {
				rest = strings.TrimSpace(found)
				return nil
			}
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended with code %d before it said %q", p.Name, p.ExitCode(), prefix)
		default:
		}
		return errors.New("not yet")
	})
	return rest
}

func (p *Process) sendSignal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("send %s to %s: %v", s, p.Name, err)
	}
}
