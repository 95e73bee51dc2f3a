// SPDX-License-Identifier: Apache-2.0

// Package background runs a program in the background. The program keeps its files in a folder.
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

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	startLimit   = 5 * time.Minute
	stopLimit    = 2 * time.Minute
	pollInterval = 200 * time.Millisecond
)

var (
	errStands  = errors.New("expected no running environment in this folder, found one; stop it with down and the same folder")
	errTooLate = errors.New("took too long")
)

// Program is a program that runs in the background, at most one per folder.
type Program struct {
	// Dir is the absolute path of the folder. The files with the log and the process id are next to the folder.
	Dir string
	// readyFile is the name of the file in the folder that the program creates once it is ready.
	readyFile string
}

// NewProgram returns the program of a folder. It is ready once the folder contains a file with the name readyFile.
func NewProgram(dir, readyFile string) (Program, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Program{}, fmt.Errorf("resolve folder: %w", err)
	}
	return Program{Dir: dir, readyFile: readyFile}, nil
}

func (b Program) logFile() string { return b.Dir + ".log" }
func (b Program) pidFile() string { return b.Dir + ".pid" }

// Start runs the program in a separate session and waits until it is ready.
func (b Program) Start(ctx context.Context, argv ...string) error {
	if _, err := b.findPID(); err == nil {
		return errStands
	}
	if err := os.MkdirAll(filepath.Dir(b.Dir), 0o700); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	log, err := os.Create(b.logFile())
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer func() { _ = log.Close() }()
	_ = os.Remove(filepath.Join(b.Dir, b.readyFile))
	child := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	child.Stdout, child.Stderr = log, log
	// A separate session outlives this terminal and its interrupts.
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := os.WriteFile(b.pidFile(), []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	if err := b.awaitReady(context.WithoutCancel(ctx), ended); err != nil {
		return fmt.Errorf("%w; the log is %s", err, b.logFile())
	}
	return nil
}

func (b Program) awaitReady(ctx context.Context, ended <-chan error) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, startLimit, false, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the environment ended early: %w", errors.Join(err, errTooLate))
		default:
			_, err := os.Stat(filepath.Join(b.Dir, b.readyFile))
			return err == nil, nil
		}
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("the environment is not ready after %s: %w", startLimit, errTooLate)
	}
	return err
}

// Stop ends the program and waits for it.
func (b Program) Stop(ctx context.Context, out io.Writer) error {
	pid, err := b.findPID()
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(out, "nothing is running")
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	err = wait.PollUntilContextTimeout(context.WithoutCancel(ctx), pollInterval, stopLimit, false, func(context.Context) (bool, error) {
		_, err := b.findPID()
		return err != nil, nil
	})
	if err != nil {
		return fmt.Errorf("process %d does not stop: %w", pid, errTooLate)
	}
	fmt.Fprintln(out, "everything is stopped")
	return os.Remove(b.pidFile())
}

// findPID returns the process id of the program, or fs.ErrNotExist if the program does not run. It compares the command
// line, because another process may have reused the id.
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
