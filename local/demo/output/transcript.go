// SPDX-License-Identifier: Apache-2.0

// Package output prints the transcript of a demo in a terminal while it is observed: steps, what was seen in them and
// when, and what is waited for.
package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	pollInterval   = 100 * time.Millisecond
	noticeInterval = 15 * time.Second
	attemptLimit   = 10 * time.Second
	escapeBold     = "\x1b[1m"
	escapeGreen    = "\x1b[32m"
	escapeReset    = "\x1b[0m"
	secondsFormat  = "%6.1fs"
)

// Transcript is what a demo prints.
type Transcript struct {
	// Out gets it; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool

	steps     int
	stepBegan time.Time
}

// permanentError is an error that no further try can mend.
type permanentError struct{ error }

// Unwrap gives the error within.
func (e permanentError) Unwrap() error { return e.error }

// MarkPermanent makes an error one that ends a PollUntil.
func MarkPermanent(err error) error { return permanentError{err} }

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

// StepCount is how many steps have begun.
func (t *Transcript) StepCount() int { return t.steps }

// PrintObserved prints what was observed, and how long into the step.
func (t *Transcript) PrintObserved(format string, args ...any) {
	fmt.Fprintf(t.Out, secondsFormat+" %s %s\n", time.Since(t.stepBegan).Seconds(), t.paint(escapeGreen, "✓"), fmt.Sprintf(format, args...))
}

// AddNote prints what helps to understand the rest.
func (t *Transcript) AddNote(format string, args ...any) {
	fmt.Fprintf(t.Out, secondsFormat+"   %s\n", time.Since(t.stepBegan).Seconds(), fmt.Sprintf(format, args...))
}

// QuoteOutput prints what a program has printed.
func (t *Transcript) QuoteOutput(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(t.Out, "          %s\n", strings.TrimRight(line, "\n"))
	}
}

// PollUntil repeats f until it returns nil. A long wait prints what it waits for.
func (t *Transcript) PollUntil(ctx context.Context, what string, limit time.Duration, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	notice := time.NewTicker(noticeInterval)
	defer notice.Stop()
	for {
		// An attempt that hangs, at an API server that is being started, must not use up the whole limit.
		attempt, done := context.WithTimeout(within, attemptLimit)
		err := f(attempt)
		done()
		if err == nil {
			return nil
		}
		if permanent, ok := errors.AsType[permanentError](err); ok {
			return permanent.error
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("gave up after %s: %w", limit, err)
		case <-notice.C:
			if what != "" {
				t.AddNote("still waiting for %s", what)
			}
		case <-tick.C:
		}
	}
}
