// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/local/stage"
)

const (
	stageFile   = "standing"
	pidFile     = "pid"
	stageLimit  = 5 * time.Minute
	tearLimit   = 2 * time.Minute
	watchPeriod = 200 * time.Millisecond
)

var (
	errStands  = errors.New("expected nothing to stand, found a stage that runs; make down stops it")
	errTooLate = errors.New("expected it sooner")
)

func upCommand() *cobra.Command {
	var c stage.Config
	var foreground bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build the stage of the demo and keep it",
		Long: `Build the stage of the demo, a hub, a cloud, a cluster and torpor manager, and keep it in the background.

Exit codes: 0 when everything stands, 1 otherwise.`,
		Example: "  local up --dir .cache/up\n  local down --dir .cache/up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeDemo(cmd, &c); err != nil {
				return err
			}
			c.Certificates = time.Hour
			if !foreground {
				return detach(cmd, c)
			}
			return stage.Up(cmd.Context(), c, func() {
				_ = os.WriteFile(filepath.Join(c.Dir, stageFile), nil, 0o600)
			})
		},
	}
	cmd.Flags().StringVar(&c.Dir, "dir", "up", "folder for everything that is made; emptied first")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground until told to stop")
	demoFlags(cmd, &c)
	return cmd
}

// detach runs the same command in a session of its own and waits until the stage stands.
func detach(cmd *cobra.Command, c stage.Config) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("resolve folder: %w", err)
	}
	if _, err := runningPID(dir); err == nil {
		return errStands
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	defer func() { _ = log.Close() }()
	_ = os.Remove(filepath.Join(dir, stageFile))
	child := exec.CommandContext(context.WithoutCancel(cmd.Context()), c.Local, "up", "--foreground", "--dir", dir, "--torpor", c.Torpor, "--crds", c.CRDs, "--latency", c.Latency.String())
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := os.WriteFile(dir+"."+pidFile, []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
		return fmt.Errorf("write pid: %w", err)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "building the stage: hub, cloud, cluster, manager (about 20 seconds)")
	gone := make(chan error, 1)
	go func() { gone <- child.Wait() }()
	if err := awaitStage(dir, gone); err != nil {
		return fmt.Errorf("%w; the log is %s", err, log.Name())
	}
	fmt.Fprintf(cmd.OutOrStdout(), `everything stands. Try:

  export KUBECONFIG=%[1]s/hub/admin.kubeconfig PATH=%[2]s:$PATH
  kubectl get cd
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Hibernating}'
  kubectl wait cd mycluster --for=jsonpath='{.status.powerState}'=Hibernating
  kubectl patch cd mycluster --type=merge -p 'spec: {powerState: Running}'
  kubectl get events

kubectl is bundled in %[2]s. Stop everything with: make down
`, dir, filepath.Dir(c.Local))
	return nil
}

func awaitStage(dir string, gone <-chan error) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	limit := time.NewTimer(stageLimit)
	defer limit.Stop()
	for {
		select {
		case err := <-gone:
			return fmt.Errorf("the stage ended early: %w", errors.Join(err, errTooLate))
		case <-limit.C:
			return fmt.Errorf("the stage does not stand after %s: %w", stageLimit, errTooLate)
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(dir, stageFile)); err == nil {
				return nil
			}
		}
	}
}

func downCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop what up has built",
		Example: "  local down --dir .cache/up",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			abs, err := filepath.Abs(dir)
			if err != nil {
				return fmt.Errorf("resolve folder: %w", err)
			}
			pid, err := runningPID(abs)
			if errors.Is(err, fs.ErrNotExist) {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing stands")
				return nil
			}
			if err != nil {
				return err
			}
			return tearDown(cmd, abs, pid)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "up", "folder that up was given")
	return cmd
}

func tearDown(cmd *cobra.Command, dir string, pid int) error {
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
			if _, err := runningPID(dir); err != nil {
				fmt.Fprintln(cmd.OutOrStdout(), "everything is stopped")
				return os.Remove(dir + "." + pidFile)
			}
		}
	}
}

// runningPID is the process that keeps the stage; fs.ErrNotExist if there is none. The command line is compared,
// because the number of an ended process may belong to another one by now.
func runningPID(dir string) (int, error) {
	data, err := os.ReadFile(dir + "." + pidFile)
	if err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read pid: %w", err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(line), dir) {
		return 0, fmt.Errorf("find process %d: %w", pid, fs.ErrNotExist)
	}
	return pid, nil
}
