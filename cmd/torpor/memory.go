// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"strconv"
)

// goMemoryPercent is how much of the container's memory Go may use. The kernel counts more than Go knows of: the pages of the program
// itself, files, sockets; and a collector that begins at the limit itself begins too late.
const goMemoryPercent = 70

// limitMemory keeps Go below the memory of the container, which the Deployment hands over in TORPOR_MEMORY_LIMIT. GOMEMLIMIT, which Go
// itself reads, wins.
func limitMemory(env func(string) string) error {
	text := env("TORPOR_MEMORY_LIMIT")
	if text == "" || env("GOMEMLIMIT") != "" {
		return nil
	}
	limit, err := strconv.ParseInt(text, 10, 64)
	if err != nil || limit <= 0 {
		return fmt.Errorf("expected TORPOR_MEMORY_LIMIT to be a number of bytes, found %q; take it from the field limits.memory of the container", text)
	}
	debug.SetMemoryLimit(limit / 100 * goMemoryPercent)
	return nil
}
