// SPDX-License-Identifier: Apache-2.0

package stoprecord

import (
	"fmt"
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// DescribeIgnored says which annotation of a stop is ignored, and why; empty if none is.
func (r Records) DescribeIgnored() string {
	newest := r.Newest()
	if newest == nil || newest.RequestedUntil == "" || newest.Until != nil {
		return ""
	}
	if _, err := ParseUntil(newest.RequestedUntil, newest.Since.Time); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s is ignored: expected a time after the stop began at %s, found %q, which an earlier stop left; set another or remove it",
		torporv1alpha1.UntilAnnotation, formatTime(newest.Since.Time), newest.RequestedUntil)
}

// Describe says who asked for the stop that holds, why and until when, to be put behind a sentence; empty if none holds.
func (r Records) Describe() string {
	if !r.Holds() {
		return ""
	}
	text, newest := "", r.Newest()
	if newest.By != "" {
		text += "; asked for by " + newest.By
	}
	if newest.Reason != "" {
		text += ": " + newest.Reason
	}
	if newest.Until != nil {
		text += "; until " + formatTime(newest.Until.Time)
	}
	return text
}

// Events are what has happened from one record to the next.
func Events(before, after Records, action string) []decision.Event {
	var events []decision.Event
	if begun, last := after.Newest(), before.Newest(); begun != nil && (last == nil || !last.Since.Equal(&begun.Since)) && isUnknown(begun.By) {
		events = append(events, decision.Event{
			Reason: EventRequesterUnknown, Action: action,
			Note: "Expected the admission policies of Torpor to note who asked for the stop, found " + begun.By + "; install them as in docs/record.md",
		})
	}
	if ended := after.Newest(); after.HasEnded() && !before.HasEnded() {
		events = append(events, decision.Event{
			Reason: EventStopEnded, Action: action, Note: "The stop has ended by itself: it was until " + formatTime(ended.Until.Time),
		})
	}
	if ignored := after.DescribeIgnored(); ignored != "" && ignored != before.DescribeIgnored() {
		events = append(events, decision.Event{Warning: true, Reason: EventAnnotationIgnored, Action: action, Note: ignored})
	}
	return events
}

func isUnknown(by string) bool {
	return by == UnknownRequester || strings.HasPrefix(by, UnknownRequester+" (")
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
