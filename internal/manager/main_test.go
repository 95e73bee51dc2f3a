// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that the manager leaves no goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
