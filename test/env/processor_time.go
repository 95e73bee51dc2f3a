// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ReadProcessorTime returns the CPU time that a process has used since its start.
func ReadProcessorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all relevant architectures of Linux.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	ExpectNoError(t, err)
	// The times follow the name in parentheses, which may contain any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	ExpectNoError(t, errors.Join(err1, err2))
	return time.Duration(user+system) * tick
}
