// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/machineprocess"
	"github.com/torpor-dev/torpor/local/loopback"
)

const (
	readyLimit = 2 * time.Minute
	stopLimit  = 40 * time.Second
)

// Program is a program that runs until the clean-up of the demo.
type Program struct {
	*machineprocess.Process

	name, log string
}

// StartProgram starts a program whose output is written to a log file with its name.
func (r *Runner) StartProgram(name string, argv ...string) *Program {
	log := r.config.FilePath(name + ".log")
	started, err := r.starter.Start(machineprocess.Command{Argv: argv, Log: log, Marker: "demo-" + name})
	if err != nil {
		FailStep("start %s: %w", name, err)
	}
	p := &Program{Process: started, name: name, log: log}
	r.OnCleanUp(p.stop)
	return p
}

func (p *Program) stop() {
	p.Terminate()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-p.Exited():
	case <-timer.C:
		p.Kill()
		<-p.Exited()
		FailStep("expected %s to stop within %s, had to kill it", p.name, stopLimit)
	}
}

// failEarlyEnd makes a poll fail if the program has ended.
func (p *Program) failEarlyEnd() {
	select {
	case <-p.Exited():
		ExpectNoError(permanentError{fmt.Errorf("%s ended early; its log is %s", p.name, p.log)})
	default:
	}
}

// AwaitLogLine waits until the log of the program has a line with the prefix, and returns the rest of that line.
func (r *Runner) AwaitLogLine(p *Program, prefix string) (found string) {
	r.Poll("", readyLimit, func(context.Context) {
		text, err := os.ReadFile(p.log)
		ExpectNoError(err)
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				found = strings.TrimSpace(rest)
				return
			}
		}
		p.failEarlyEnd()
		FailStep("expected a line %q in %s", prefix, p.log)
	})
	return found
}

// AwaitReady waits until the program reports that it is ready, at its address for probes.
func (r *Runner) AwaitReady(p *Program, address string) {
	r.Poll("the "+p.name, readyLimit, func(ctx context.Context) {
		if _, err := FetchURL(ctx, "http://"+address+"/readyz"); err != nil {
			p.failEarlyEnd()
			ExpectNoError(err)
		}
	})
}

// CommandLine is a command line with its environment.
type CommandLine struct {
	Program string
	Args    []string
	// Env is added to the environment; Stdin is the standard input.
	Env   []string
	Stdin string
	// Limit is longer than the command takes.
	Limit time.Duration
}

// RunCommand runs a command with the programs of the demo on the PATH, and returns its output.
func (r *Runner) RunCommand(c CommandLine) string {
	ctx, cancel := context.WithTimeout(r.Context, c.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Program, c.Args...)
	cmd.Stdin = strings.NewReader(c.Stdin)
	path := filepath.Dir(r.config.Torpor) + ":" + filepath.Dir(r.config.Local) + ":" + os.Getenv("PATH")
	cmd.Env = append(append(os.Environ(), "KUBECONFIG="+r.Kubeconfig, "PATH="+path), c.Env...)
	// Only this program gets an interrupt at the terminal. It then ends the other programs in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		line := filepath.Base(c.Program) + " " + strings.Join(c.Args, " ")
		FailStep("%s: %w: %s", line, err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(out.String())
}

// FetchURL sends a GET request to a URL and returns the body of the response.
func FetchURL(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("create request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get %s: expected 200, found %s", url, resp.Status)
	}
	return string(body), nil
}

// ReserveAddresses reserves loopback addresses until ctx ends, for programs that cannot choose and report a free
// port.
func ReserveAddresses(ctx context.Context, count int) (reserved []string) {
	for range count {
		port, err := loopback.ReservePort(ctx, "127.0.0.1")
		ExpectNoError(err)
		reserved = append(reserved, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return reserved
}
