// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Parallel tests wait for an API server rather than for a processor. The command line has the last word.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
