// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// FindLeaks returns an error if goroutines are left. It waits for those that are ending, because goleak itself waits
// for less than half a second.
func FindLeaks(options ...goleak.Option) error {
	err := goleak.Find(options...)
	for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
		err = goleak.Find(options...)
	}
	return err
}

// RunWithoutLeaks runs the tests of a package, and returns its exit code. It fails if goroutines are left.
func RunWithoutLeaks(m *testing.M, options ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := FindLeaks(options...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
