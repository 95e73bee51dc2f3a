// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/demo/output"
)

const (
	readyTimeout = 2 * time.Minute
	stopTimeout  = 40 * time.Second
)

// child is a program that the demo started and has to stop.
type child struct {
	name, log string
	*process.Process
}

// start runs a program with its output in a log file.
func (r *run) start(name string, argv ...string) (*child, error) {
	log := r.path(name + ".log")
	p, err := r.starter.Start(process.Command{Argv: argv, Log: log, Marker: "demo-" + name})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, log: log, Process: p}
	r.children = append(r.children, c)
	return c, nil
}

// awaitLine waits until the log has a line with the prefix, and returns what follows it.
func (r *run) awaitLine(c *child, prefix string) (string, error) {
	var found string
	err := r.poll("", readyTimeout, func(context.Context) error {
		f, err := os.Open(c.log)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
				found = strings.TrimSpace(rest)
				return nil
			}
		}
		select {
		case <-c.Exited():
			return output.NoMore(fmt.Errorf("%s ended early; its log is %s", c.name, c.log))
		default:
			return fmt.Errorf("expected a line %q in %s", prefix, c.log)
		}
	})
	return found, err
}

// stopAll stops the children in the reverse order of their start, and says so when one had to be killed.
func (r *run) stopAll() error {
	var late []string
	for _, c := range slices.Backward(r.children) {
		c.Terminate()
		timer := time.NewTimer(stopTimeout)
		select {
		case <-c.Exited():
		case <-timer.C:
			c.Kill()
			<-c.Exited()
			late = append(late, c.name)
		}
		timer.Stop()
	}
	r.children = nil
	r.starter.Close()
	if len(late) > 0 {
		return fmt.Errorf("expected %s to stop within %s, had to kill", strings.Join(late, ", "), stopTimeout)
	}
	return nil
}
