// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that the manager left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
