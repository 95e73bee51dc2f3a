// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"reflect"
	"runtime"
)

// mark makes a report due.
func (l *loop) mark(s *subscriber) {
	if !s.pending && !s.gone {
		s.pending = true
		l.pending = append(l.pending, s)
	}
}

// speak makes one due report, and tells whether there was one.
func (l *loop) speak() bool {
	l.mu.Lock()
	if len(l.pending) == 0 {
		l.mu.Unlock()
		return false
	}
	s := l.pending[0]
	l.pending = l.pending[1:]
	s.pending = false
	if s.gone {
		l.mu.Unlock()
		return true
	}
	verdicts := make([]Verdict, len(s.tracks))
	for i, t := range s.tracks {
		verdicts[i] = t.verdict
	}
	l.speaking = s
	l.mu.Unlock()

	call(s.report, verdicts)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.speaking = nil
	l.reported.Broadcast()
	return true
}

// awaitReport returns when no report of a subscriber is under way.
func (l *loop) awaitReport(s *subscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.speaking == s {
		l.reported.Wait()
	}
}

// call is what inReport finds on the stack.
//
//go:noinline
func call(report func([]Verdict), verdicts []Verdict) { report(verdicts) }

// inReport tells whether its caller was called, however deeply, by a report.
func inReport() bool {
	callers := make([]uintptr, 64)
	n := runtime.Callers(2, callers)
	for n == len(callers) {
		callers = make([]uintptr, 2*n)
		n = runtime.Callers(2, callers)
	}
	begin := reflect.ValueOf(call).Pointer()
	frames := runtime.CallersFrames(callers[:n])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); frame.Entry == begin {
			return true
		}
	}
	return false
}
