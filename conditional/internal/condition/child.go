// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Child is a condition together with the sources it observes.
type Child struct {
	Name string
	// Observe reports every change until ctx ends; it returns nil when nothing can change any more.
	Observe func(ctx context.Context, report func(Status)) error
}

// DefaultBackoff grows from 1 s to 5 min.
func DefaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 5 * time.Minute}
}

// ObserveWithBackoff observes the child until ctx ends, again with a back-off after an error or a panic, which it reports as
// Unknown. The back-off begins anew after an observation that lasted longer than its Cap.
func (c Child) ObserveWithBackoff(ctx context.Context, backoff wait.Backoff, report func(Status)) {
	pause := backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := c.observeOnce(ctx, report)
		if err == nil || ctx.Err() != nil {
			return
		}
		report(Status{State: Unknown, Reason: "ObserveFailed", Message: err.Error()})
		if time.Since(began) > backoff.Cap {
			pause = backoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Step()):
		}
	}
}

func (c Child) observeOnce(ctx context.Context, report func(Status)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("condition %s panicked: %v", c.Name, p)
		}
	}()
	if err := c.Observe(ctx, report); err != nil {
		return fmt.Errorf("observe condition %s: %w", c.Name, err)
	}
	return nil
}
