// SPDX-License-Identifier: Apache-2.0

package stoprecord

import (
	"fmt"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// FindScheduled returns the Slumber's stop that holds, which is the first of its stops; nil if none does. A stop does not hold longer than it was meant to, and not while
// somebody skips it: what is asleep wakes also where nobody cares for Slumbers any more.
func FindScheduled(stops []torporv1alpha1.ScheduledStop, annotations map[string]string, now time.Time) *torporv1alpha1.ScheduledStop {
	if skippedUntil, _ := ReadSkip(annotations); now.Before(skippedUntil) {
		return nil
	}
	for i, stop := range stops {
		if Records(stop.Stops).Holds() && (stop.ExpiresAt == nil || now.Before(stop.ExpiresAt.Time)) {
			return &stops[i]
		}
	}
	return nil
}

// ScheduledEnd is when the Slumber's stop expires that holds; zero if none holds, or it never does.
func ScheduledEnd(stops []torporv1alpha1.ScheduledStop, annotations map[string]string, now time.Time) time.Time {
	if scheduled := FindScheduled(stops, annotations, now); scheduled != nil && scheduled.ExpiresAt != nil {
		return scheduled.ExpiresAt.Time
	}
	return time.Time{}
}

// ReadSkip returns until when Slumbers leave an object alone; zero if they do not, with an error if the annotation makes no sense.
func ReadSkip(annotations map[string]string) (time.Time, error) {
	text := annotations[torporv1alpha1.SkipUntilAnnotation]
	if text == "" {
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: expected a time such as 2026-11-20T22:00:00Z, found %.40q; correct or remove it", torporv1alpha1.SkipUntilAnnotation, text)
	}
	return until, nil
}
