// SPDX-License-Identifier: Apache-2.0

// Package runner contains the common code of the demos: it performs steps in order, starts and stops programs, runs
// commands and prints observations.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/local/cloud/machineprocess"
)

// Config defines where a demo finds its programs and where it prints.
type Config struct {
	// Dir is the folder for all created files.
	Dir string
	// Local, Torpor and Kubectl are the programs.
	Local, Torpor, Kubectl string
	// Out is the destination of the transcript; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool
}

// FilePath returns the path of a file below the folder of the demo.
func (c Config) FilePath(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Runner runs one demo.
type Runner struct {
	*Transcript

	// Context ends the steps, but not the clean-up.
	Context context.Context
	// Kubeconfig is set in the environment of commands.
	Kubeconfig string

	config   Config
	starter  *machineprocess.Starter
	began    time.Time
	cleanups []func()
}

// NewRunner returns the runner of a demo, and makes the paths in c and the given paths absolute.
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
		Transcript: &Transcript{Out: c.Out, Colour: c.Colour}, Context: ctx,
		config: *c, starter: machineprocess.NewStarter(), began: time.Now(),
	}, nil
}

// EmptyDir removes the files of an earlier run.
func (r *Runner) EmptyDir() {
	if err := errors.Join(os.RemoveAll(r.config.Dir), os.MkdirAll(r.config.Dir, 0o700)); err != nil {
		FailStep("empty demo folder: %w", err)
	}
}

// Demo describes a demo.
type Demo struct {
	Steps []func()
	// Duration is the approximate duration of the steps; it is shown after an interrupt.
	Duration string
	// LastStep is the title of the clean-up, which always runs.
	LastStep string
	// VerifyCleanUp is called after everything has been stopped; nil verifies nothing.
	VerifyCleanUp func()
	// Summary is appended to the last line; nil appends nothing.
	Summary func() string
}

// RunDemo performs all steps and cleans up. It returns nil only if every expected result was observed.
func (r *Runner) RunDemo(d Demo) error {
	err := RunSteps(d.Steps...)
	switch {
	case r.Context.Err() != nil:
		err = fmt.Errorf("interrupted; expected to run to the end, which takes about %s", d.Duration)
	case err != nil:
		err = fmt.Errorf("step %d: %w; logs are in %s", r.StepCount(), err, r.config.Dir)
	}
	r.BeginStep(d.LastStep)
	left := r.CleanUp()
	if left == nil && d.VerifyCleanUp != nil {
		left = RunSteps(d.VerifyCleanUp)
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	summary := ""
	if d.Summary != nil {
		summary = d.Summary()
	}
	fmt.Fprintf(r.Out, "\nEverything was observed, in %.0f seconds%s.\n", time.Since(r.began).Seconds(), summary)
	return nil
}

// RunSteps runs the steps in order until one fails.
func RunSteps(steps ...func()) (err error) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case stepError:
			err = found.error
		default:
			panic(found)
		}
	}()
	for _, step := range steps {
		step()
	}
	return nil
}

// stepError is the value of a panic that ends a step from any depth, as FailNow ends a test.
type stepError struct{ error }

// FailStep ends the step, or the attempt of a Poll.
func FailStep(format string, args ...any) { panic(stepError{fmt.Errorf(format, args...)}) }

// ExpectNoError ends the step, or the attempt of a Poll, if there is an error.
func ExpectNoError(err error) {
	if err != nil {
		panic(stepError{err})
	}
}

// OnCleanUp registers a function that undoes a step; the last registered function runs first.
func (r *Runner) OnCleanUp(undo func()) { r.cleanups = append(r.cleanups, undo) }

// CleanUp undoes the steps, even after an interrupt.
func (r *Runner) CleanUp() error {
	// An interrupt of the steps must not interrupt the clean-up functions.
	r.Context = context.WithoutCancel(r.Context)
	var errs []error
	for _, undo := range slices.Backward(r.cleanups) {
		errs = append(errs, RunSteps(undo))
	}
	r.cleanups = nil
	r.starter.Close()
	return errors.Join(errs...)
}

// Poll repeats an attempt until it succeeds, and ends the step after the limit. During a long wait it prints the
// description.
func (r *Runner) Poll(what string, limit time.Duration, attempt func(context.Context)) {
	within, cancel := context.WithTimeout(r.Context, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	notice := time.NewTicker(noticeInterval)
	defer notice.Stop()
	for {
		// An attempt that hangs, at an API server that is starting, must not use up the whole limit.
		ctx, done := context.WithTimeout(within, attemptLimit)
		err := RunSteps(func() { attempt(ctx) })
		done()
		if err == nil {
			return
		}
		if permanent, ok := errors.AsType[permanentError](err); ok {
			ExpectNoError(permanent.error)
		}
		select {
		case <-within.Done():
			ExpectNoError(context.Cause(r.Context))
			FailStep("gave up after %s: %w", limit, err)
		case <-notice.C:
			if what != "" {
				r.AddNote("still waiting for %s", what)
			}
		case <-tick.C:
		}
	}
}

const (
	pollInterval   = 100 * time.Millisecond
	noticeInterval = 15 * time.Second
	attemptLimit   = 10 * time.Second
	escapeBold     = "\x1b[1m"
	escapeGreen    = "\x1b[32m"
	escapeReset    = "\x1b[0m"
	secondsFormat  = "%6.1fs"
)

// Transcript is the output of a demo.
type Transcript struct {
	// Out is the destination of the output; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool

	steps     int
	stepBegan time.Time
}

// permanentError is an error after which a poll does not retry.
type permanentError struct{ error }

func (t *Transcript) paint(escape, text string) string {
	if !t.Colour {
		return text
	}
	return escape + text + escapeReset
}

// BeginStep prints the title of the next step.
func (t *Transcript) BeginStep(title string) {
	t.steps++
	t.stepBegan = time.Now()
	fmt.Fprintf(t.Out, "\n%s\n", t.paint(escapeBold, fmt.Sprintf("%d. %s", t.steps, title)))
}

// StepCount returns the number of steps begun so far.
func (t *Transcript) StepCount() int { return t.steps }

// PrintObserved prints an observation, with the time since the beginning of the step.
func (t *Transcript) PrintObserved(format string, args ...any) {
	fmt.Fprintf(t.Out, secondsFormat+" %s %s\n", time.Since(t.stepBegan).Seconds(), t.paint(escapeGreen, "✓"), fmt.Sprintf(format, args...))
}

// AddNote prints an explanation.
func (t *Transcript) AddNote(format string, args ...any) {
	fmt.Fprintf(t.Out, secondsFormat+"   %s\n", time.Since(t.stepBegan).Seconds(), fmt.Sprintf(format, args...))
}

// QuoteOutput prints the output of a program.
func (t *Transcript) QuoteOutput(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(t.Out, "          %s\n", strings.TrimRight(line, "\n"))
	}
}
