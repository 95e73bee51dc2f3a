// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

var logBegin = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// writeLog returns a log with a line per second.
func writeLog(lines, width int) []byte {
	var log bytes.Buffer
	for i := range lines {
		_, _ = fmt.Fprintf(&log, "%s %d%s\n", logBegin.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano), i, strings.Repeat("x", width))
	}
	return log.Bytes()
}

func (c *logCollector) readAll(t *testing.T, logs ...io.Reader) []string {
	t.Helper()
	var readers errgroup.Group
	for i, log := range logs {
		readers.Go(func() error { return c.readLines(log, fmt.Sprint(i), "web") })
	}
	if err := readers.Wait(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, line := range c.sorted() {
		all = append(all, string(line.Payload))
	}
	return all
}

func TestLogCollectorSelectsTheLinesOfAWindow(t *testing.T) {
	at := func(second int) int64 { return logBegin.Add(time.Duration(second) * time.Second).UnixNano() }
	for name, test := range map[string]struct {
		window LogWindow
		want   []string
	}{
		"a limit selects the first lines":                                              {LogWindow{Until: math.MaxInt64, Limit: 3}, []string{"0", "0", "1"}},
		"a limit in descending order selects the last lines":                           {LogWindow{Until: math.MaxInt64, Limit: 3, Descending: true}, []string{"9", "9", "8"}},
		"a start time and an end time select the lines between them":                   {LogWindow{From: at(2), Until: at(4), Limit: 9}, []string{"2", "2", "3", "3"}},
		"a limit of one in descending order selects the last line before the end time": {LogWindow{Until: at(4), Limit: 1, Descending: true}, []string{"3"}},
		"a start time after the last line selects no lines":                            {LogWindow{From: at(10), Until: math.MaxInt64, Limit: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &logCollector{window: test.window}
			if got := c.readAll(t, bytes.NewReader(writeLog(10, 0)), bytes.NewReader(writeLog(10, 0))); !slices.Equal(got, test.want) {
				t.Errorf("found %v, want %v", got, test.want)
			}
		})
	}
}

// TestLogCollectorKeepsOnlyTheLinesOfOneResponse reads the logs of thirty Pods, 120 MiB in total.
func TestLogCollectorKeepsOnlyTheLinesOfOneResponse(t *testing.T) {
	const pods = 30
	for width, least := range map[int]int{100: 1000, 10_000: 75, 2 * maxLineBytes: 8} {
		for _, descending := range []bool{false, true} {
			log := writeLog(maxReadBytes/(width+22), width)
			var logs []io.Reader
			for range pods {
				logs = append(logs, bytes.NewReader(log))
			}
			c := &logCollector{window: LogWindow{Until: math.MaxInt64, Limit: 1000, Descending: descending}}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			lines := c.readAll(t, logs...)
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(log)
			live, allocated := int64(after.HeapAlloc)-int64(before.HeapAlloc), after.TotalAlloc-before.TotalAlloc
			t.Logf("lines of %d bytes, descending %v: %d lines, %d KiB live, %d MiB allocated", width, descending, len(lines), live>>10, allocated>>20)
			if c.bytes > maxKeptBytes || live > 2*maxKeptBytes+1<<20 {
				t.Errorf("found %d bytes of lines and %d bytes of heap, want at most %d", c.bytes, live, maxKeptBytes)
			}
			if len(lines) < least {
				t.Errorf("found %d lines of %d bytes, want at least %d", len(lines), width, least)
			}
		}
	}
}
