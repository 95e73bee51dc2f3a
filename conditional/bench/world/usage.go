// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what this process holds.
type Usage struct{ Goroutines, Heap, Stack float64 }

// Less returns what was added after an earlier measurement.
func (u Usage) Less(earlier Usage) Usage {
	return Usage{u.Goroutines - earlier.Goroutines, u.Heap - earlier.Heap, u.Stack - earlier.Stack}
}

// Settle waits until the number of goroutines stays the same for a while and returns what is then held, without garbage.
func Settle(ctx context.Context) (Usage, error) {
	const still, most = 20, 500 // looks
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for last, same, looks := 0, 0, 0; same < still && looks < most; looks++ {
		now := runtime.NumGoroutine()
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return Usage{}, context.Cause(ctx)
		}
	}
	var stats runtime.MemStats
	heap := math.Inf(1)
	for range 3 { // Pools give up their content only after the second collection.
		runtime.GC()
		runtime.ReadMemStats(&stats)
		heap = min(heap, float64(stats.HeapAlloc))
	}
	return Usage{Goroutines: float64(runtime.NumGoroutine()), Heap: heap, Stack: float64(stats.StackInuse)}, nil
}

// CPU returns the time for which this process has used processors so far.
func CPU() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("read the used CPU time: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

// Load returns the machine's load average of the last minute; ok is false where the system does not tell.
func Load() (load float64, ok bool) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, err = strconv.ParseFloat(first, 64)
	return load, err == nil
}
