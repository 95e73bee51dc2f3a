// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// TestMain sets a logger for controller-runtime, without which its clients log warnings.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
