// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"
	"time"
)

const (
	// patience is far above everything that is waited for, so that a slow machine fails nothing.
	patience = time.Minute
	interval = 100 * time.Millisecond
)

// Eventually calls f until it returns nil. After a minute the test fails with the last error.
func Eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never came true within %s: %s: %v", patience, what, err)
		}
	}
}
