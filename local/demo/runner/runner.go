// SPDX-License-Identifier: Apache-2.0

// Package runner is what the demos share: they do steps in order, start programs and stop them again, run commands and
// print what they observe.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/process"
	"github.com/torpor-dev/torpor/local/demo/output"
)

// Config is where a demo finds its programs and what it prints to.
type Config struct {
	// Dir keeps everything that is made.
	Dir string
	// Local, Torpor and Kubectl are the programs.
	Local, Torpor, Kubectl string
	// Out gets the transcript; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool
}

// FilePath is the path of a file below the folder of the demo.
func (c Config) FilePath(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Runner runs one demo.
type Runner struct {
	*output.Transcript

	// Context ends the steps; what cleans up after them goes on.
	Context context.Context
	// Kubeconfig is what commands find in their environment.
	Kubeconfig string

	config   Config
	starter  *process.Starter
	began    time.Time
	cleanups []func() error
}

// NewRunner makes the runner of a demo, whose paths it makes absolute.
func NewRunner(ctx context.Context, c *Config, paths ...*string) (*Runner, error) {
	for _, path := range append(paths, &c.Dir, &c.Local, &c.Torpor, &c.Kubectl) {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("resolve folder: %w", err)
		}
		*path = absolute
	}
	for _, program := range []string{c.Local, c.Torpor, c.Kubectl} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("find program: %w; run make demo, which builds it", err)
		}
	}
	return &Runner{
		Transcript: &output.Transcript{Out: c.Out, Colour: c.Colour}, Context: ctx,
		config: *c, starter: process.NewStarter(), began: time.Now(),
	}, nil
}

// EmptyDir removes what an earlier run has left in the folder.
func (r *Runner) EmptyDir() error {
	if err := errors.Join(os.RemoveAll(r.config.Dir), os.MkdirAll(r.config.Dir, 0o700)); err != nil {
		return fmt.Errorf("empty demo folder: %w", err)
	}
	return nil
}

// Demo is what a runner does and prints.
type Demo struct {
	Steps []func() error
	// Duration is about how long the steps take, for who interrupts them.
	Duration string
	// LastStep is the title of the cleaning up, which is done whatever happened before.
	LastStep string
	// VerifyCleanUp is called when all that was started has been stopped; nil verifies nothing.
	VerifyCleanUp func() error
	// Summary ends the last line; nil adds nothing to it.
	Summary func() string
}

// RunDemo does all steps and cleans up. It returns nil only if all of it was observed.
func (r *Runner) RunDemo(d Demo) error {
	err := RunSteps(d.Steps...)
	switch {
	case r.Context.Err() != nil:
		err = fmt.Errorf("interrupted; expected to be let through to the end, which takes about %s", d.Duration)
	case err != nil:
		err = fmt.Errorf("step %d: %w; logs are in %s", r.StepCount(), err, r.config.Dir)
	}
	r.BeginStep(d.LastStep)
	left := r.CleanUp()
	if left == nil && d.VerifyCleanUp != nil {
		left = d.VerifyCleanUp()
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	summary := ""
	if d.Summary != nil {
		summary = d.Summary()
	}
	fmt.Fprintf(r.Out, "\nAll of it was observed, in %.0f seconds%s.\n", time.Since(r.began).Seconds(), summary)
	return nil
}

// RunSteps does the steps one after the other, up to the first that fails.
func RunSteps(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// OnCleanUp registers what undoes a step; the last registered is the first to be done.
func (r *Runner) OnCleanUp(undo func() error) { r.cleanups = append(r.cleanups, undo) }

// CleanUp undoes the steps, also after an interrupt.
func (r *Runner) CleanUp() error {
	// What undoes a step must run to its end when the steps were interrupted.
	r.Context = context.WithoutCancel(r.Context)
	var errs []error
	for _, undo := range slices.Backward(r.cleanups) {
		errs = append(errs, undo())
	}
	r.cleanups = nil
	r.starter.Close()
	return errors.Join(errs...)
}

// Poll repeats f until it returns nil. A long wait prints what it waits for.
func (r *Runner) Poll(what string, limit time.Duration, f func(context.Context) error) error {
	return r.PollUntil(r.Context, what, limit, f)
}
