// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
)

const (
	memoryInterval = 500 * time.Millisecond
	mebibyte       = 1 << 20
)

// memoryWatch keeps the highest sum of resident memory over this process and everything below it.
type memoryWatch struct{ peak atomic.Int64 }

func watchMemory(ctx context.Context) *memoryWatch {
	w := &memoryWatch{}
	go func() {
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for {
			var sum int64
			for _, p := range listDescendants() {
				sum += int64(p.ResidentMemory())
			}
			w.peak.Store(max(w.peak.Load(), sum))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

func (w *memoryWatch) peakMiB() int64 { return w.peak.Load() / mebibyte }

// verifyNoProcesses verifies that no process below this one is alive.
func verifyNoProcesses() error {
	var left []error
	for _, p := range listDescendants() {
		if p.PID != os.Getpid() {
			left = append(left, fmt.Errorf("expected every process to have ended, found %d (%s)", p.PID, p.Comm))
		}
	}
	return errors.Join(left...)
}

// listDescendants lists this process and its descendants; it is empty where there is no /proc.
func listDescendants() []procfs.ProcStat {
	list, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	all := map[int]procfs.ProcStat{}
	for _, p := range list {
		// A process may end while the list is read; a kernel thread or a zombie has no memory.
		if stat, err := p.Stat(); err == nil && stat.RSS > 0 {
			all[stat.PID] = stat
		}
	}
	var found []procfs.ProcStat
	for _, p := range all {
		for up, ok := p, true; ok; up, ok = all[up.PPID] {
			if up.PID == os.Getpid() {
				found = append(found, p)
				break
			}
		}
	}
	return found
}
