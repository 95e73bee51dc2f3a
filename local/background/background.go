// SPDX-License-Identifier: Apache-2.0

// Package background keeps a program in the background that stands on a folder.
package background

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	standLimit  = 5 * time.Minute
	tearLimit   = 2 * time.Minute
	watchPeriod = 200 * time.Millisecond
)

var (
	errStands  = errors.New("expected nothing to stand, found a stage that runs; stop it with down and the same folder")
	errTooLate = errors.New("expected it sooner")
)

// Program is a program that stands in the background and keeps a folder.
type Program struct {
	// Dir is the folder, as an absolute path; the log and the process id are beside it.
	Dir string
	// readyFile is the name of the file in the folder that tells that everything stands.
	readyFile string
}

// NewProgram is the stage of a folder, which stands once there is a file of the name ready in it.
func NewProgram(dir, ready string) (Program, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Program{}, fmt.Errorf("resolve folder: %w", err)
	}
	return Program{Dir: dir, readyFile: ready}, nil
}

func (b Program) logFile() string { return b.Dir + ".log" }
func (b Program) pidFile() string { return b.Dir + ".pid" }

// Start runs the program in a session of its own and waits until it stands.
func (b Program) Start(ctx context.Context, argv ...string) error {
	if _, err := b.findPID(); err == nil {
		return errStands
	}
	if err := os.MkdirAll(filepath.Dir(b.Dir), 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	log, err := os.Create(b.logFile())
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer func() { _ = log.Close() }()
	_ = os.Remove(filepath.Join(b.Dir, b.readyFile))
	child := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := os.WriteFile(b.pidFile(), []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- child.Wait() }()
	if err := b.awaitReady(gone); err != nil {
		return fmt.Errorf("%w; the log is %s", err, b.logFile())
	}
	return nil
}

func (b Program) awaitReady(gone <-chan error) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	limit := time.NewTimer(standLimit)
	defer limit.Stop()
	for {
		select {
		case err := <-gone:
			return fmt.Errorf("the stage ended early: %w", errors.Join(err, errTooLate))
		case <-limit.C:
			return fmt.Errorf("the stage does not stand after %s: %w", standLimit, errTooLate)
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(b.Dir, b.readyFile)); err == nil {
				return nil
			}
		}
	}
}

// Stop ends the program and waits for it.
func (b Program) Stop(out io.Writer) error {
	pid, err := b.findPID()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "nothing stands")
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	limit := time.NewTimer(tearLimit)
	defer limit.Stop()
	for {
		select {
		case <-limit.C:
			return fmt.Errorf("process %d does not stop: %w", pid, errTooLate)
		case <-tick.C:
			if _, err := b.findPID(); err != nil {
				fmt.Fprintln(out, "everything is stopped")
				return os.Remove(b.pidFile())
			}
		}
	}
}

// findPID is the process that keeps the stage; fs.ErrNotExist if there is none. The command line is compared,
// because the number of an ended process may belong to another one by now.
func (b Program) findPID() (int, error) {
	data, err := os.ReadFile(b.pidFile())
	if err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), b.Dir) {
		return 0, fmt.Errorf("find process %d: %w", pid, fs.ErrNotExist)
	}
	return pid, nil
}
