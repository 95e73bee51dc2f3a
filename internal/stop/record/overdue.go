// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// overdueGrace is how long after its end a stop becomes overdue, because a start takes time.
const overdueGrace = 5 * time.Minute

// The texts of the NEXT column for a stop with an end.
const (
	StartsByItself          = "starts by itself"
	ShouldHaveStartedItself = "should have started by itself: check whether the manager runs"
)

// IsOverdue reports whether a stop in effect should have ended. A stop without an end is never overdue.
func IsOverdue(until *metav1.Time, now time.Time) bool {
	return until != nil && now.After(until.Add(overdueGrace))
}

// FormatLocal formats a time for users, in their time zone. Output for programs uses RFC 3339 in UTC instead.
func FormatLocal(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("2006-01-02 15:04 MST")
}

// FormatEnd formats the end of a stop in effect, in the time zone of now. If the stop is overdue, it adds by how much.
// It returns a dash if the stop has no end.
func FormatEnd(until *metav1.Time, now time.Time) string {
	switch {
	case until == nil:
		return "-"
	case IsOverdue(until, now):
		return FormatLocal(until.Time, now.Location()) + " (" + duration.HumanDuration(now.Sub(until.Time)) + " overdue)"
	default:
		return FormatLocal(until.Time, now.Location())
	}
}
