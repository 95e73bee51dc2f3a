// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	memoryInterval = 500 * time.Millisecond
	kibPerMiB      = 1024
)

// memory keeps the highest sum of resident memory over this process and everything below it.
type memory struct{ peakKiB atomic.Int64 }

func watchMemory(ctx context.Context) *memory {
	m := &memory{}
	go func() {
		tick := time.NewTicker(memoryInterval)
		defer tick.Stop()
		for {
			var sum int64
			for _, p := range family() {
				sum += p.residentKiB
			}
			m.peakKiB.Store(max(m.peakKiB.Load(), sum))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return m
}

func (m *memory) peakMiB() int64 { return m.peakKiB.Load() / kibPerMiB }

// nothingLeft looks that no process below this one is alive.
func (r *run) nothingLeft() error {
	var left []error
	for _, p := range family() {
		if p.pid != os.Getpid() {
			left = append(left, fmt.Errorf("expected every process to have ended, found %d (%s)", p.pid, p.name))
		}
	}
	return errors.Join(left...)
}

type member struct {
	pid         int
	parent      int
	name        string
	residentKiB int64
}

// family lists this process and its descendants from /proc; it is empty where there is none.
func family() []member {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return nil
	}
	all := map[int]member{}
	for _, file := range files {
		if p, ok := readMember(file); ok {
			all[p.pid] = p
		}
	}
	var mine []member
	for _, p := range all {
		for up, ok := p, true; ok; up, ok = all[up.parent] {
			if up.pid == os.Getpid() {
				mine = append(mine, p)
				break
			}
		}
	}
	return mine
}

func readMember(file string) (member, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return member{}, false
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	pid, errPID := strconv.Atoi(fields["Pid"])
	parent, errParent := strconv.Atoi(fields["PPid"])
	// A kernel thread or a zombie has no memory and so no such line.
	resident, errResident := strconv.ParseInt(strings.TrimSuffix(fields["VmRSS"], " kB"), 10, 64)
	ok := errPID == nil && errParent == nil && errResident == nil
	return member{pid: pid, parent: parent, name: fields["Name"], residentKiB: resident}, ok
}
