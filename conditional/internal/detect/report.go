// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"reflect"
	"runtime"
)

// queueReport makes a report due.
func (l *detectionLoop) queueReport(s *presenceSubscriber) {
	if !s.isReportQueued && !s.isRemoved {
		s.isReportQueued = true
		l.pendingReports = append(l.pendingReports, s)
	}
}

// deliverReport makes one due report, and reports whether there was one.
func (l *detectionLoop) deliverReport() bool {
	l.mu.Lock()
	if len(l.pendingReports) == 0 {
		l.mu.Unlock()
		return false
	}
	s := l.pendingReports[0]
	l.pendingReports = l.pendingReports[1:]
	s.isReportQueued = false
	if s.isRemoved {
		l.mu.Unlock()
		return true
	}
	verdicts := make([]Verdict, len(s.kinds))
	for i, t := range s.kinds {
		verdicts[i] = t.verdict
	}
	l.reporting = s
	l.mu.Unlock()

	callReport(s.report, verdicts) // Without the lock: the report may subscribe and cancel.

	l.mu.Lock()
	defer l.mu.Unlock()
	l.reporting = nil
	l.reportDone.Broadcast()
	return true
}

// awaitReport returns when no report of a subscriber is under way.
func (l *detectionLoop) awaitReport(s *presenceSubscriber) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.reporting == s {
		l.reportDone.Wait()
	}
}

// callReport is the function that isInReport looks for on the stack, so it must not be inlined.
//
//go:noinline
func callReport(report func([]Verdict), verdicts []Verdict) { report(verdicts) }

// isInReport reports whether its caller was called, however deeply, by a report.
func isInReport() bool {
	callers := make([]uintptr, 64)
	n := runtime.Callers(2, callers)
	for n == len(callers) {
		callers = make([]uintptr, 2*n)
		n = runtime.Callers(2, callers)
	}
	begin := reflect.ValueOf(callReport).Pointer()
	frames := runtime.CallersFrames(callers[:n])
	for more := true; more; {
		var frame runtime.Frame
		if frame, more = frames.Next(); frame.Entry == begin {
			return true
		}
	}
	return false
}
