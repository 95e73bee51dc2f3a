// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that the manager left behind. One kind is not ours: apimachinery's filtered watch, which
// controller-runtime puts around metadata watches, waits for ever to pass on the error of its own cancellation.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop"))
}
