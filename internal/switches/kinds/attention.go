// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"
	"strings"
	"time"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Attention is a class of switches that need a user's attention with the same urgency.
type Attention int

// The classes of switches, in the order in which tables list them.
const (
	// AttentionStuck is for a switch that waits for an intervention or has failed.
	AttentionStuck Attention = iota
	// AttentionOverdue is for a stop that is still in effect although its end time has passed.
	AttentionOverdue
	// AttentionChanging is for a switch that has not reached the requested state.
	AttentionChanging
	AttentionStopped
	AttentionRunning
)

// Attention returns the class of the row's switch.
func (r Row) Attention(now time.Time) Attention {
	switch {
	case r.IsStuck(), strings.HasPrefix(r.State, "Failed"):
		return AttentionStuck
	case r.IsOverdue(now):
		return AttentionOverdue
	case r.IsChanging():
		return AttentionChanging
	case r.Stopped:
		return AttentionStopped
	default:
		return AttentionRunning
	}
}

// IsStuck reports whether the switch waits for an intervention.
func (r Row) IsStuck() bool { return strings.HasPrefix(r.Next, StuckPrefix) || r.Refusal != "" }

// IsOverdue reports whether the stop should have ended.
func (r Row) IsOverdue(now time.Time) bool {
	return r.Stopped && stoprecord.IsOverdue(r.Until, now)
}

// IsChanging reports whether the switch has not reached the requested state yet.
func (r Row) IsChanging() bool {
	rests := slices.Contains([]string{"Hibernating", "stopped"}, r.State)
	runs := slices.Contains([]string{"Running", "running"}, r.State)
	return r.Stopped && !rests || !r.Stopped && !runs && r.State != "unknown" && r.State != "Unknown"
}

// NextAt returns the value of the NEXT column at the given time. For an overdue stop, it replaces the announcement of
// the automatic start, because this start has not happened.
func (r Row) NextAt(now time.Time) string {
	switch {
	case !r.IsOverdue(now):
		return r.Next
	case r.Next == stoprecord.StartsByItself:
		return stoprecord.ShouldHaveStartedItself
	case r.Next == r.wakesItself():
		return "should have started by itself: check whether the manager runs, or run " + r.SkipCommand()
	default:
		return r.Next
	}
}
