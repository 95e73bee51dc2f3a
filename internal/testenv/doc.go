// SPDX-License-Identifier: Apache-2.0

// Package testenv gives tests a world: a real hub, a simulated cloud, target clusters on it, and processes that end
// with the test. It is imported by tests only. The program that plays the world is the repository's own binary local,
// whose path the environment variable TORPOR_LOCAL holds; without it the tests are skipped.
package testenv

import (
	"os"
	"testing"
)

// local returns the path of the binary local, or skips the test.
func local(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TORPOR_LOCAL")
	if path == "" {
		t.Skip("TORPOR_LOCAL is not set: expected the path of the binary local; build it with `make local`, run with `make test`")
	}
	return path
}
