// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// RunWithoutLeaks runs the tests of a package, and returns its exit code. It fails if goroutines are left. It waits
// longer for ending goroutines than goleak itself, which waits for less than half a second.
func RunWithoutLeaks(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	err := goleak.Find()
	for end := time.Now().Add(eventuallyTimeout); err != nil && time.Now().Before(end); {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
