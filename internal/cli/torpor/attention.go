// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Attention is how soon a user should look at a switch.
type Attention int

// The order in which tables list switches.
const (
	// AttentionStuck is a switch that waits for an intervention or has failed.
	AttentionStuck Attention = iota
	// AttentionOverdue is a stop that continues after its end.
	AttentionOverdue
	// AttentionChanging is a switch that has not reached the requested state.
	AttentionChanging
	AttentionStopped
	AttentionRunning
)

// Attention compares the requested state with the reported one.
func (s Switch) Attention(now time.Time) Attention {
	switch {
	case s.IsStuck(), strings.HasPrefix(s.State, "Failed"):
		return AttentionStuck
	case s.IsOverdue(now):
		return AttentionOverdue
	case s.IsChanging():
		return AttentionChanging
	case s.Stopped:
		return AttentionStopped
	default:
		return AttentionRunning
	}
}

// IsOverdue reports whether the stop should have ended.
func (s Switch) IsOverdue(now time.Time) bool {
	return s.Stopped && stoprecord.IsOverdue(s.Until, now)
}

// IsChanging reports whether the switch has not reached the requested state yet.
func (s Switch) IsChanging() bool {
	rests := slices.Contains([]string{"Hibernating", "stopped"}, s.State)
	runs := slices.Contains([]string{"Running", "running"}, s.State)
	return s.Stopped && !rests || !s.Stopped && !runs && s.State != "unknown" && s.State != "Unknown"
}

// sortByAttention keeps the order of rows that need the same attention.
func sortByAttention(rows []stopRow, now time.Time) {
	slices.SortStableFunc(rows, func(a, b stopRow) int {
		return cmp.Compare(Switch{a}.Attention(now), Switch{b}.Attention(now))
	})
}

// NextAt returns the next step at a time. For an overdue stop it does not promise the automatic start, which has not
// happened.
func (s Switch) NextAt(now time.Time) string {
	switch {
	case !s.IsOverdue(now):
		return s.Next
	case s.Next == stoprecord.StartsByItself:
		return stoprecord.ShouldHaveStartedItself
	case s.Next == s.wakesItself():
		return "should have started by itself: see whether the manager runs, or run " + s.skipCommand()
	default:
		return s.Next
	}
}

// withOverdue marks the row if its stop should have ended.
func (r stopRow) withOverdue(now time.Time) stopRow {
	r.Overdue, r.Next = Switch{r}.IsOverdue(now), Switch{r}.NextAt(now)
	return r
}

// wakesItself returns the next step of an object that a Slumber stops until a known time.
func (r stopRow) wakesItself() string { return "starts by itself, or now by " + r.skipCommand() }
