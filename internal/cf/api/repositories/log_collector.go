// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

const (
	// maxLineBytes is the length at which lines are truncated, as in Cloud Foundry.
	maxLineBytes = 64 << 10
	// maxKeptBytes limits the total size of the lines in a response.
	maxKeptBytes = 1 << 20
)

// LogLine is a line of an instance's log, with its time in nanoseconds. Kubernetes stores stdout and stderr in the same
// log.
type LogLine struct {
	At                    int64
	Instance, ProcessType string
	Payload               []byte
	// order is the order in which lines with equal times were read.
	order int
}

// LogWindow selects lines at or after From and before Until, which are Unix times in nanoseconds. It selects the first
// Limit lines, or the last ones if Descending is set.
type LogWindow struct {
	From, Until int64
	Limit       int
	Descending  bool
}

// logCollector keeps the lines of a window from several concurrent readers. It holds only as many lines as a response
// contains.
type logCollector struct {
	window LogWindow

	mu    sync.Mutex
	lines []LogLine
	bytes int
	read  int
	// isPartial is true if a line in the window was not kept or not read.
	isPartial bool
}

// readLines reads the lines of one container, which are ordered by time.
func (c *logCollector) readLines(from io.Reader, instance, processType string) error {
	lines := bufio.NewReaderSize(from, maxLineBytes)
	for {
		line, err := lines.ReadSlice('\n')
		wanted := c.add(bytes.TrimSuffix(line, []byte("\n")), instance, processType)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case !wanted || errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the log: %w", err)
		}
	}
}

// add keeps a line if it is in the window. It reports whether later lines can be in the window.
func (c *logCollector) add(line []byte, instance, processType string) bool {
	stamp, text, _ := bytes.Cut(line, []byte(" "))
	var parsed time.Time
	if err := parsed.UnmarshalText(stamp); err != nil {
		return true
	}
	at := parsed.UnixNano()
	if at < c.window.From || at >= c.window.Until {
		return at < c.window.From
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read++
	next := LogLine{At: at, order: c.read}
	if len(c.lines) > 0 && (len(c.lines) >= c.window.Limit || c.bytes+len(text) > maxKeptBytes) && !c.precedes(next, c.lines[0]) {
		c.isPartial = true
		return c.window.Descending
	}
	next.Instance, next.ProcessType, next.Payload = instance, processType, append([]byte{}, text...)
	if len(c.lines) >= c.window.Limit {
		c.isPartial = true
		c.bytes += len(next.Payload) - len(c.lines[0].Payload)
		c.lines[0] = next
		heap.Fix(c, 0)
	} else {
		heap.Push(c, next)
	}
	for c.bytes > maxKeptBytes {
		c.isPartial = true
		heap.Pop(c)
	}
	return true
}

// notePartial records that some lines may not have been read.
func (c *logCollector) notePartial() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isPartial = true
}

// precedes reports whether a is before b in the window's order.
func (c *logCollector) precedes(a, b LogLine) bool {
	order := cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.order, b.order))
	if c.window.Descending {
		return order > 0
	}
	return order < 0
}

// sorted returns the lines in the window's order.
func (c *logCollector) sorted() []LogLine {
	slices.SortFunc(c.lines, func(a, b LogLine) int {
		if c.precedes(a, b) {
			return -1
		}
		return 1
	})
	return c.lines
}

// The root of the heap is the line that is dropped first.

// Len implements heap.Interface.
func (c *logCollector) Len() int { return len(c.lines) }

// Less implements heap.Interface.
func (c *logCollector) Less(i, j int) bool { return c.precedes(c.lines[j], c.lines[i]) }

// Swap implements heap.Interface.
func (c *logCollector) Swap(i, j int) { c.lines[i], c.lines[j] = c.lines[j], c.lines[i] }

// Push implements heap.Interface.
func (c *logCollector) Push(x any) {
	if line, ok := x.(LogLine); ok {
		c.lines, c.bytes = append(c.lines, line), c.bytes+len(line.Payload)
	}
}

// Pop implements heap.Interface.
func (c *logCollector) Pop() any {
	last := c.lines[len(c.lines)-1]
	c.lines[len(c.lines)-1] = LogLine{}
	c.lines, c.bytes = c.lines[:len(c.lines)-1], c.bytes-len(last.Payload)
	return last
}
