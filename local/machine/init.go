// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// initProcess starts the node's parts and buries every process whose parent has gone, as the first process of a
// machine has to. So it waits for all processes in one place, and os/exec cannot be used to wait.
type initProcess struct {
	environment []string
	parts       chan error

	mu      sync.Mutex
	waits   map[int]func(syscall.WaitStatus)
	burying bool
}

func newInit(environment []string) *initProcess {
	i := &initProcess{environment: environment, parts: make(chan error, 1), waits: map[int]func(syscall.WaitStatus){}}
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

// start runs a part that has to run as long as the node does.
func (i *initProcess) start(name, log string, argv ...string) error {
	return i.fork(log, argv, func(status syscall.WaitStatus) {
		select {
		case i.parts <- fmt.Errorf("%s ended by itself: %w; its log is %s", name, ending(status), log):
		default: // The first that ends is the one to tell of.
		}
	})
}

// run runs a command to its end.
func (i *initProcess) run(ctx context.Context, name, log string, argv ...string) error {
	done := make(chan syscall.WaitStatus, 1)
	if err := i.fork(log, argv, func(status syscall.WaitStatus) { done <- status }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", name, ctx.Err())
	case status := <-done:
		if status.Exited() && status.ExitStatus() == 0 {
			return nil
		}
		return fmt.Errorf("%s: %w; its log is %s", name, ending(status), log)
	}
}

func (i *initProcess) fork(log string, argv []string, ended func(syscall.WaitStatus)) error {
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
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env: append(os.Environ(), i.environment...), Files: []uintptr{null.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	i.waits[pid] = ended
	if !i.burying {
		i.burying = true
		go i.bury()
	}
	return nil
}

// bury waits for children, own and inherited, as long as there are any.
func (i *initProcess) bury() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		i.mu.Lock()
		if err != nil && len(i.waits) == 0 {
			i.burying = false
			i.mu.Unlock()
			return
		}
		ended := i.waits[pid]
		delete(i.waits, pid)
		i.mu.Unlock()
		if ended != nil {
			ended(status)
		}
	}
}

// ended tells of a part that has ended.
func (i *initProcess) ended() error {
	select {
	case err := <-i.parts:
		return err
	default:
		return nil
	}
}

func (i *initProcess) firstEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-i.parts:
		return err
	}
}

func ending(s syscall.WaitStatus) error {
	if s.Signaled() {
		return fmt.Errorf("signal %s", s.Signal())
	}
	return fmt.Errorf("exit code %d", s.ExitStatus())
}
