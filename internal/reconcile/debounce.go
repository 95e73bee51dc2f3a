// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// statusDebounce is how long an operation must be in progress before its progress is written to the status. For a
// shorter operation, such as most restarts of an app, only the result is written.
const statusDebounce = 250 * time.Millisecond

// debounce returns how long to delay the status write of a report, or zero to write now. The start of the delay is kept
// in memory only: after a restart of the process, the delay begins again.
func (p *Pass[T, S, P]) debounce(req ctrl.Request, isTransient bool) time.Duration {
	if !isTransient {
		p.transients.Delete(req)
		return 0
	}
	now := p.Clock.Now()
	began, held := p.transients.LoadOrStore(req, now)
	since, _ := began.(time.Time)
	if !held {
		return statusDebounce
	}
	if waited := now.Sub(since); waited < statusDebounce {
		return statusDebounce - waited
	}
	p.transients.Delete(req)
	return 0
}

// minNonZero returns the shorter of two delays, where a zero b means that there is no second delay.
func minNonZero(a, b time.Duration) time.Duration {
	if b == 0 {
		return a
	}
	return min(a, b)
}
