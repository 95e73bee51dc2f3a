// SPDX-License-Identifier: Apache-2.0

// Package output tells a story in a terminal while it is being observed: steps, what was seen in them and when, and what
// is waited for.
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
	pollInterval  = 100 * time.Millisecond
	patienceLine  = 15 * time.Second
	attemptLimit  = 10 * time.Second
	escapeBold    = "\x1b[1m"
	escapeGreen   = "\x1b[32m"
	escapeReset   = "\x1b[0m"
	secondsFormat = "%6.1fs"
)

// Story is what is told.
type Story struct {
	// Out gets it; Colour allows escape sequences in it.
	Out    io.Writer
	Colour bool

	steps int
	began time.Time
}

// final is an error that no further try can mend.
type final struct{ error }

// Unwrap gives the error within.
func (f final) Unwrap() error { return f.error }

// NoMore makes an error one that ends a Poll.
func NoMore(err error) error { return final{err} }

func (s *Story) colour(escape, text string) string {
	if !s.Colour {
		return text
	}
	return escape + text + escapeReset
}

// Step begins a part of the story.
func (s *Story) Step(title string) {
	s.steps++
	s.began = time.Now()
	fmt.Fprintf(s.Out, "\n%s\n", s.colour(escapeBold, fmt.Sprintf("%d. %s", s.steps, title)))
}

// Steps is how many have begun.
func (s *Story) Steps() int { return s.steps }

// Saw tells what was observed, and how long into the step.
func (s *Story) Saw(format string, args ...any) {
	fmt.Fprintf(s.Out, secondsFormat+" %s %s\n", time.Since(s.began).Seconds(), s.colour(escapeGreen, "✓"), fmt.Sprintf(format, args...))
}

// Note tells what helps to understand the rest.
func (s *Story) Note(format string, args ...any) {
	fmt.Fprintf(s.Out, secondsFormat+"   %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// Quote shows what a program has printed.
func (s *Story) Quote(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(s.Out, "          %s\n", strings.TrimRight(line, "\n"))
	}
}

// Poll repeats f until it returns nil. Long waits tell what they wait for.
func (s *Story) Poll(ctx context.Context, what string, limit time.Duration, f func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	patience := time.NewTicker(patienceLine)
	defer patience.Stop()
	for {
		attempt, done := context.WithTimeout(within, attemptLimit)
		err := f(attempt)
		done()
		if err == nil {
			return nil
		}
		if stop, ok := errors.AsType[final](err); ok {
			return stop.error
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("gave up after %s: %w", limit, err)
		case <-patience.C:
			if what != "" {
				s.Note("still waiting for %s", what)
			}
		case <-tick.C:
		}
	}
}
