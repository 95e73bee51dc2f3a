// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMain checks that the manager leaves no goroutines behind.
func TestMain(m *testing.M) { os.Exit(testenv.RunWithoutLeaks(m)) }
