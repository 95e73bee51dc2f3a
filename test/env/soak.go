// SPDX-License-Identifier: Apache-2.0

package env

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// ReadSoakOptions returns the duration of a soak from TORPOR_SOAK, and its seed from TORPOR_SEED or from the clock. name
// is the soak's NAME of make soak. The test is skipped if TORPOR_SOAK is not set.
func ReadSoakOptions(t *testing.T, name string) (long time.Duration, seed uint64) {
	t.Helper()
	text := os.Getenv("TORPOR_SOAK")
	if text == "" {
		t.Skipf("TORPOR_SOAK is not set: expected the duration, such as 20m; run make soak NAME=%s", name)
	}
	long, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("TORPOR_SOAK: expected a duration such as 20m: %v", err)
	}
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("TORPOR_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TORPOR_SEED: expected a number: %v", err)
		}
	}
	t.Logf("seed %d (TORPOR_SEED), for %s", seed, long)
	return long, seed
}
