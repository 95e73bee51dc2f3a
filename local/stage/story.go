// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
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

// final is an error that no further try can mend.
type final struct{ error }

// Unwrap gives the error within.
func (f final) Unwrap() error { return f.error }

func (r *run) colour(escape, text string) string {
	if !r.Colour {
		return text
	}
	return escape + text + escapeReset
}

// step begins a part of the story.
func (r *run) step(title string) {
	r.steps++
	r.stepBegan = time.Now()
	fmt.Fprintf(r.Out, "\n%s\n", r.colour(escapeBold, fmt.Sprintf("%d. %s", r.steps, title)))
}

// saw tells what was observed, and how long into the step.
func (r *run) saw(format string, args ...any) {
	fmt.Fprintf(r.Out, secondsFormat+" %s %s\n", time.Since(r.stepBegan).Seconds(), r.colour(escapeGreen, "✓"), fmt.Sprintf(format, args...))
}

func (r *run) note(format string, args ...any) {
	fmt.Fprintf(r.Out, secondsFormat+"   %s\n", time.Since(r.stepBegan).Seconds(), fmt.Sprintf(format, args...))
}

// poll repeats f until it returns nil. Long waits tell what they wait for.
func (r *run) poll(what string, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	patience := time.NewTicker(patienceLine)
	defer patience.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, attemptLimit)
		err := f(attempt)
		done()
		if err == nil {
			return nil
		}
		if stop, ok := errors.AsType[final](err); ok {
			return stop.error
		}
		select {
		case <-ctx.Done():
			if r.ctx.Err() != nil {
				return context.Cause(r.ctx)
			}
			return fmt.Errorf("gave up after %s: %w", limit, err)
		case <-patience.C:
			if what != "" {
				r.note("still waiting for %s", what)
			}
		case <-tick.C:
		}
	}
}
