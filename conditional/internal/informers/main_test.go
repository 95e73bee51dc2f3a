// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// One of them slows errors down by a clock of the process, which is decades ahead of a bubble's.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}
