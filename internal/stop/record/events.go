// SPDX-License-Identifier: Apache-2.0

package record

const (
	// EventStopEnded reports that a stop has ended at the time in the annotation torpor.dev/until, or in that of its
	// part.
	EventStopEnded = "StopEnded"
	// EventStopOverdue reports that a stop is still in effect after the time in the annotation torpor.dev/until or in
	// that of its part, and why.
	EventStopOverdue = "StopOverdue"
	// EventRequesterUnknown reports a stop whose requester was not recorded by an admission policy or webhook.
	EventRequesterUnknown = "RequesterUnknown"
	// EventAnnotationIgnored reports an ignored annotation of a stop, and why it is ignored.
	EventAnnotationIgnored = "AnnotationIgnored"
)
