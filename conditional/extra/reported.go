// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"sync"

	"github.com/torpor-dev/torpor/conditional"
)

// Reported is a condition whose status the program sets with Report. Any number of groups may have it. With the
// callbacks of a leader election, a Lease becomes a condition of groups: see docs/manual.md. The condition is Unknown
// until the first report. The zero value has no name; a condition of Setup needs one.
type Reported struct {
	// Name is the name of the condition.
	Name string

	mu      sync.Mutex
	status  conditional.Status
	changed chan struct{} // changed is closed at the next change; nil without observers
}

// String implements conditional.Condition.
func (r *Reported) String() string { return r.Name }

// Validate returns an error for a condition without a name.
func (r *Reported) Validate(conditional.Sources) error {
	return errorUnless(r.Name != "", "condition Reported needs a name: set Name")
}

// Report sets the status, and reports whether it differs from the status before.
func (r *Reported) Report(s conditional.Status) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == r.status {
		return false
	}
	r.status = s
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
	return true
}

// Status returns the last reported status.
func (r *Reported) Status() conditional.Status {
	s, _ := r.current()
	return s
}

// Observe implements conditional.Condition.
func (r *Reported) Observe(ctx context.Context, _ conditional.Sources, report func(conditional.Status)) error {
	for {
		s, changed := r.current()
		report(s)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (r *Reported) current() (conditional.Status, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	s := r.status
	if s == (conditional.Status{}) {
		s = conditional.Status{State: conditional.Unknown, Reason: "NotReported", Message: "it has not reported yet"}
	}
	return s, r.changed
}
