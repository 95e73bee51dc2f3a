// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"os"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMain checks that elections leave no goroutines behind.
func TestMain(m *testing.M) { os.Exit(testenv.RunWithoutLeaks(m)) }
