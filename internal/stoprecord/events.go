// SPDX-License-Identifier: Apache-2.0

package stoprecord

const (
	// EventStopEnded reports that a stop ended by itself, at the time of the annotation torpor.dev/until.
	EventStopEnded = "StopEnded"
	// EventStopOverdue reports that a stop goes on after the time of the annotation torpor.dev/until, and why.
	EventStopOverdue = "StopOverdue"
	// EventRequesterUnknown reports a stop of which no admission noted who asked for it.
	EventRequesterUnknown = "RequesterUnknown"
	// EventAnnotationIgnored reports an annotation of a stop that makes no sense.
	EventAnnotationIgnored = "AnnotationIgnored"
)
