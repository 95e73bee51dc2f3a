// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// DescribeIgnored returns the reason why the annotation with the end of the stop is ignored; empty if it is not
// ignored.
func (r Records) DescribeIgnored(untilAnnotation string) string {
	newest := r.RequestedStop()
	if newest == nil || newest.RequestedUntil == "" || newest.Until != nil {
		return ""
	}
	if _, err := ParseUntil(newest.RequestedUntil, newest.Since.Time); err != nil {
		return fmt.Sprintf("%s is ignored: %s; correct or remove it", untilAnnotation, err)
	}
	return fmt.Sprintf("%s is ignored: expected a time after the stop began at %s, found %q, which an earlier stop left behind; set a later time, or remove the annotation",
		untilAnnotation, formatTime(newest.Since.Time), newest.RequestedUntil)
}

// Describe returns the requester, the reason and the end of the stop in effect, to be appended to a sentence;
// empty if no stop is in effect.
func (r Records) Describe() string {
	if !r.Holds() {
		return ""
	}
	text, newest := "", r.RequestedStop()
	if newest.By != "" {
		text += "; asked for by " + newest.By
	}
	if newest.Reason != "" {
		text += ": " + newest.Reason
	}
	if newest.Until != nil {
		text += "; until " + formatTime(newest.Until.Time)
		if newest.UntilBy != "" && newest.UntilBy != newest.By {
			text += ", which " + newest.UntilBy + " set"
		}
	}
	return text
}

// Events returns the events for the differences between two states of the records. untilAnnotation is the name of
// the annotation with the end of the stop.
func Events(before, after Records, untilAnnotation, action string) []decision.Event {
	var events []decision.Event
	if begun, last := after.RequestedStop(), before.RequestedStop(); begun != nil && (last == nil || !last.Since.Equal(&begun.Since)) && isUnknown(begun.By) {
		events = append(events, decision.Event{
			Reason: EventRequesterUnknown, Action: action,
			Note: "Expected the admission policies of Torpor to record the requester of the stop, found " + begun.By + "; install them as described in docs/record.md",
		})
	}
	if ended := after.RequestedStop(); after.HasExpired() && !before.HasExpired() {
		events = append(events, decision.Event{
			Reason: EventStopEnded, Action: action, Note: "The stop has ended by itself: its end was " + formatTime(ended.Until.Time),
		})
	}
	if ignored := after.DescribeIgnored(untilAnnotation); ignored != "" && ignored != before.DescribeIgnored(untilAnnotation) {
		events = append(events, decision.Event{Warning: true, Reason: EventAnnotationIgnored, Action: action, Note: ignored})
	}
	return events
}

func isUnknown(by string) bool {
	return by == UnknownRequester || strings.HasPrefix(by, UnknownRequester+" (")
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
