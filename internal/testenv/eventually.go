// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"
	"time"
)

const (
	// eventuallyTimeout is far above everything that is waited for, so that a slow machine fails nothing.
	eventuallyTimeout  = 2 * time.Minute
	eventuallyInterval = 100 * time.Millisecond
)

// Eventually calls f until it returns nil. After two minutes the test fails with the last error.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	EventuallyWithin(t, eventuallyTimeout, what, f)
}

// EventuallyWithin is Eventually for what takes longer, such as a rollout on real nodes.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(eventuallyInterval)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never came true within %s: %s: %v", limit, what, err)
		}
	}
}

// Consistently calls f again and again for a while, and fails the test at the first error.
func Consistently(t testing.TB, duration time.Duration, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(eventuallyInterval)
	defer tick.Stop()
	end := time.NewTimer(duration)
	defer end.Stop()
	for {
		if err := f(); err != nil {
			t.Fatalf("did not stay true for %s: %s: %v", duration, what, err)
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}
