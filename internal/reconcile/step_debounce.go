// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// moment is for how long something has to go on before it is worth a write.
const moment = 100 * time.Millisecond

// hold says for how long a report is held back; zero saves it now. It is kept in memory only: after a restart of the
// process the moment begins again.
func (r *Reconciler[T]) hold(req ctrl.Request, underway bool) time.Duration {
	if !underway {
		r.underway.Delete(req)
		return 0
	}
	now := clock.RealClock{}.Now() // Tests move time in a bubble.
	began, held := r.underway.LoadOrStore(req, now)
	if since, ok := began.(time.Time); held && ok && now.Sub(since) >= moment {
		r.underway.Delete(req)
		return 0
	} else if held && ok {
		return moment - now.Sub(since)
	}
	return moment
}

// sooner is the shorter of two waits, of which zero is none.
func sooner(a, b time.Duration) time.Duration {
	if b == 0 {
		return a
	}
	return min(a, b)
}
