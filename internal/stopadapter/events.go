// SPDX-License-Identifier: Apache-2.0

package stopadapter

const (
	// EventStopped reports that an object without a status of Torpor's was stopped.
	EventStopped = "ObjectStopped"
	// EventRestored reports that such an object is as it was before its stop.
	EventRestored = "ObjectRestored"
	// EventStartedByOthers reports that somebody has changed what a stop had set, and that the object is left alone.
	EventStartedByOthers = "StartedByOthers"
	// EventLeftStopped reports that such an object stays stopped although nothing stops its kind any more, and why.
	EventLeftStopped = "LeftStopped"
	// EventStopRefused reports that such an object is not stopped although it is to be, and why.
	EventStopRefused = "StopRefused"
)
