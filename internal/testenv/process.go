// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// farewell is how long a process may take to end when it is asked to.
	farewell = 20 * time.Second
	// pipesDelay bounds the wait for grandchildren that keep the output open.
	pipesDelay = 5 * time.Second
	// shownLines is how many lines of a process are shown when the test fails.
	shownLines = 40
)

// Process is a program that ends with the test, whatever happens to the test. What it says is shown if the test fails.
type Process struct {
	// Name of the program's file, for people.
	Name string

	cmd  *exec.Cmd
	log  log
	done chan struct{}
}

// StartProcess starts a program. env, as "NAME=value", comes on top of the test's own environment.
func StartProcess(t *testing.T, path string, args, env []string) *Process {
	t.Helper()
	// The test's context ends before its cleanups, and those end the process with patience.
	ctx := context.WithoutCancel(t.Context())
	p := &Process{Name: filepath.Base(path), cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr, p.cmd.WaitDelay = tied(), pipesDelay
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // How it ended is told by its log and by ExitCode.
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			lines := slices.Collect(strings.Lines(p.Log()))
			t.Logf("%s %s said last:\n%s", p.Name, strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-shownLines):], ""))
		}
	})
	return p
}

// Kill9 kills the process and returns when it is gone.
func (p *Process) Kill9(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.done
}

// Stop asks the process to end and returns when it is gone. One that has ended already is no error.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	deadline := time.NewTimer(farewell)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		t.Errorf("%s did not end within %s after SIGTERM; it is killed", p.Name, farewell)
		p.Kill9(t)
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code of a process that has ended, -1 for one that was killed.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns what the process has written to its output and error output so far.
func (p *Process) Log() string { return p.log.String() }

// Line waits for a line that starts with the prefix and returns what follows it, without blanks around.
func (p *Process) Line(t *testing.T, prefix string) string {
	t.Helper()
	var rest string
	Eventually(t, fmt.Sprintf("%s says %q", p.Name, prefix), func() error {
		for line := range strings.Lines(p.Log()) {
			found, ok := strings.CutPrefix(line, prefix)
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

func (p *Process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("send %s to %s: %v", s, p.Name, err)
	}
}

// log is a buffer that can be read while the process writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything written so far.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
