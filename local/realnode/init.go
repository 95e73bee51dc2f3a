// SPDX-License-Identifier: Apache-2.0

//go:build linux

package realnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// initProcess starts the node's parts and reaps every process whose parent has gone, as the first process of a
// machine has to. So it waits for all processes in one place, and os/exec cannot be used to wait.
type initProcess struct {
	environment []string
	endedParts  chan error

	mu      sync.Mutex
	onEnd   map[int]func(syscall.WaitStatus)
	reaping bool
}

func newInit(environment []string) *initProcess {
	i := &initProcess{environment: environment, endedParts: make(chan error, 1), onEnd: map[int]func(syscall.WaitStatus){}}
	i.setPath()
	return i
}

// setPath lets this process find the programs that it starts where they find each other.
func (i *initProcess) setPath() {
	for _, variable := range i.environment {
		if len(variable) > 5 && variable[:5] == "PATH=" {
			_ = os.Setenv("PATH", variable[5:]) // It only fails for a name that is none.
		}
	}
}

// startPart runs a part that has to run as long as the node does.
func (i *initProcess) startPart(name, log string, argv ...string) error {
	return i.forkProcess(log, argv, func(status syscall.WaitStatus) {
		select {
		case i.endedParts <- fmt.Errorf("%s ended by itself: %w; its log is %s", name, describeStatus(status), log):
		default: // The first that ends is the one to report.
		}
	})
}

// runCommand runs a command to its end.
func (i *initProcess) runCommand(ctx context.Context, name, log string, argv ...string) error {
	done := make(chan syscall.WaitStatus, 1)
	if err := i.forkProcess(log, argv, func(status syscall.WaitStatus) { done <- status }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, ctx.Err())
	case status := <-done:
		if status.Exited() && status.ExitStatus() == 0 {
			return nil
		}
		return fmt.Errorf("%s: %w; its log is %s", name, describeStatus(status), log)
	}
}

func (i *initProcess) forkProcess(log string, argv []string, ended func(syscall.WaitStatus)) error {
	program, err := exec.LookPath(argv[0])
	if err != nil {
		return fmt.Errorf("find program: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("open input: %w", err)
	}
	defer func() { _ = null.Close() }()
	i.mu.Lock()
	defer i.mu.Unlock()
	// The lock is held until the process is known here: it may end, and be reaped, at once.
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env: append(os.Environ(), i.environment...), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	i.onEnd[pid] = ended
	if !i.reaping {
		i.reaping = true
		go i.reapChildren()
	}
	return nil
}

// reapChildren waits for children, own and inherited, as long as there are any.
func (i *initProcess) reapChildren() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		i.mu.Lock()
		if err != nil && len(i.onEnd) == 0 {
			// There are no children any more; the next fork starts to reap again.
			i.reaping = false
			i.mu.Unlock()
			return
		}
		ended := i.onEnd[pid]
		delete(i.onEnd, pid)
		i.mu.Unlock()
		if ended != nil {
			ended(status)
		}
	}
}

// endedPart is the error of a part that has ended; nil if all run.
func (i *initProcess) endedPart() error {
	select {
	case err := <-i.endedParts:
		return err
	default:
		return nil
	}
}

func (i *initProcess) awaitFirstEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-i.endedParts:
		return err
	}
}

func describeStatus(s syscall.WaitStatus) error {
	if s.Signaled() {
		return fmt.Errorf("signal %s", s.Signal())
	}
	return fmt.Errorf("exit code %d", s.ExitStatus())
}
