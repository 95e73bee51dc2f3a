// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// shownLines is how many lines of a log are shown when the test fails.
const shownLines = 40

// LogBuffer is a log that can be read while others write to it. The zero value is empty and ready.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything written so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// LastLines returns the end of what was written so far.
func (l *LogBuffer) LastLines(n int) string {
	lines := slices.Collect(strings.Lines(l.String()))
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Logger returns a logger that writes into the buffer, with everything up to a verbosity.
func (l *LogBuffer) Logger(verbosity int) logr.Logger {
	write := func(prefix, args string) { fmt.Fprintln(l, prefix, args) }
	return funcr.New(write, funcr.Options{Verbosity: verbosity, LogTimestamp: true})
}

// StructuredLogger is a logger of the standard library that writes into the buffer, debug messages included.
func (l *LogBuffer) StructuredLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ShowOnFailure shows the end of the log if the test fails.
func (l *LogBuffer) ShowOnFailure(t testing.TB, name string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said last:\n%s", name, l.LastLines(shownLines))
		}
	})
}

// ExpectWithout fails the test when it ends if the log shows a secret. The message does not show it again.
func (l *LogBuffer) ExpectWithout(t testing.TB, secrets ...string) {
	t.Helper()
	t.Cleanup(func() {
		text := l.String()
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("expected no secret in the log, found number %d of those to look for", i)
			}
		}
	})
}
