// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// FindLeaks repeats a search for leaked goroutines, such as goleak's, while some of them are still ending. A single
// search by goleak waits for less than half a second.
func FindLeaks(search func() error) error {
	err := search()
	for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
		err = search()
	}
	return err
}

// RunWithoutLeaks runs the tests of a package, and returns the exit code. It fails if goroutines are leaked.
func RunWithoutLeaks(m *testing.M, search func() error) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := FindLeaks(search); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
