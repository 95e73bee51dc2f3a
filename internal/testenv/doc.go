// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests an environment: a real API server with the repository's CRDs, controllers that run in the
// test's own process, a simulated cloud, target clusters on it, and processes that end with the test. Only tests import it.
// What it starts is the repository's own binary local, whose path the environment variable TORPOR_LOCAL holds; tests are
// skipped without it. docs/testing.md shows how the parts go together.
package testenv

import (
	"os"
	"testing"
)

// localBinary returns the path of the binary local, or skips the test.
func localBinary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TORPOR_LOCAL")
	if path == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the binary local; build it with `make local`, run with `make test`")
	}
	return path
}
