// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ReadProcessorTime is what a process has taken of the processors since it began.
func ReadProcessorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all of Linux's architectures that matter here.
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	ExpectNoError(t, err)
	// The times stand behind the name in parentheses, which may have any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	ExpectNoError(t, errors.Join(err1, err2))
	return time.Duration(user+system) * tick
}
