// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

// goMemoryPercent is the percentage of the container's memory limit that Go may use. The kernel also counts memory that
// Go does not manage: the pages of the binary, files and sockets. The garbage collector must run before all memory
// together reaches the container's limit.
const goMemoryPercent = 70

// limitMemory sets Go's memory limit below that of the container, which the Deployment passes in TORPOR_MEMORY_LIMIT.
// GOMEMLIMIT, which Go reads itself, takes precedence.
func limitMemory(env func(string) string) error {
	text := env("TORPOR_MEMORY_LIMIT")
	if text == "" || env("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("expected TORPOR_MEMORY_LIMIT to be a number of bytes, found %q; set it from the field limits.memory of the container", text)
	}
	debug.SetMemoryLimit(limit / 100 * goMemoryPercent)
	return nil
}
