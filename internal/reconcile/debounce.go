// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// statusDebounce is for how long something has to go on before it is worth a write.
const statusDebounce = 100 * time.Millisecond

// debounce returns for how long a report is held back; zero saves it now. It is kept in memory only: after a restart of the
// process the interval begins again.
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

// minNonZero is the shorter of two waits, of which zero is none.
func minNonZero(a, b time.Duration) time.Duration {
	if b == 0 {
		return a
	}
	return min(a, b)
}
