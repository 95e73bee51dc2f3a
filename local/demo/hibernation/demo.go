// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errInterrupted = errors.New("interrupted; expected to be let through to the end, which takes about 90 seconds")

// Demo tells the whole story and stops everything again. It returns nil only if all of it was observed.
func Demo(ctx context.Context, c Config) error {
	began := time.Now()
	r, err := newRun(ctx, c)
	if err != nil {
		return err
	}
	err = r.tellAll()
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err != nil:
		err = fmt.Errorf("step %d: %w; logs are in %s", r.story.Steps(), err, r.Dir)
	}
	r.step("Stop everything")
	left := errors.Join(r.stopAll(), r.nothingLeft())
	if left == nil {
		r.saw("every process that was started has ended")
	}
	if err := errors.Join(err, left); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "\nAll of it was observed, in %.0f seconds; at most %d MiB of memory were in use at once.\n", time.Since(began).Seconds(), r.memory.peakMiB())
	return nil
}

// Up builds the same stage, tells that it stands, and keeps it until ctx ends.
func Up(ctx context.Context, c Config, standing func()) error {
	r, err := newRun(ctx, c)
	if err != nil {
		return err
	}
	if err = play(r.stage()...); err == nil {
		standing()
		<-ctx.Done()
	}
	return errors.Join(err, r.stopAll())
}

func (r *run) tellAll() error {
	return play(append(r.stage(), r.hibernate, r.outliveCertificates, r.resume)...)
}
