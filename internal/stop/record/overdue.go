// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// overdueGrace is the time after the end of a stop until it is overdue: a start takes time.
const overdueGrace = 5 * time.Minute

// Next steps that tables show for a stop with an end.
const (
	StartsByItself          = "starts by itself"
	ShouldHaveStartedItself = "should have started by itself: check whether the manager runs"
)

// IsOverdue reports whether a stop in effect should have ended. A stop without an end is never overdue.
func IsOverdue(until *metav1.Time, now time.Time) bool {
	return until != nil && now.After(until.Add(overdueGrace))
}

// FormatEnd formats the end of a stop in effect, and for how long it is overdue. It returns a dash if the stop has no
// end.
func FormatEnd(until *metav1.Time, now time.Time) string {
	switch {
	case until == nil:
		return "-"
	case IsOverdue(until, now):
		return formatTime(until.Time) + " (" + duration.HumanDuration(now.Sub(until.Time)) + " overdue)"
	default:
		return formatTime(until.Time)
	}
}
