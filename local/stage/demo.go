// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Demo tells the whole story and stops everything again. It returns nil only if all of it was observed.
func Demo(ctx context.Context, c Config) error {
	began := time.Now()
	r, err := newRun(ctx, c)
	if err != nil {
		return err
	}
	err = r.story()
	if err != nil {
		err = fmt.Errorf("step %d: %w; logs are in %s", r.steps, err, r.Dir)
	}
	r.step("Stop everything")
	err = errors.Join(err, r.stopAll(), r.nothingLeft())
	if err != nil {
		return err
	}
	r.saw("every process that was started has ended")
	fmt.Fprintf(r.Out, "\nAll of it was observed, in %.0f seconds; at most %d MiB of memory were in use at once.\n", time.Since(began).Seconds(), r.memory.peakMiB())
	return nil
}

// Up builds the same stage, tells that it stands, and keeps it until ctx ends.
func Up(ctx context.Context, c Config, standing func()) error {
	r, err := newRun(ctx, c)
	if err != nil {
		return err
	}
	for _, part := range r.stage() {
		if err = part(); err != nil {
			break
		}
	}
	if err == nil {
		standing()
		<-ctx.Done()
	}
	return errors.Join(err, r.stopAll())
}

func (r *run) story() error {
	for _, part := range append(r.stage(), r.hibernate, r.outliveCertificates, r.resume) {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}
