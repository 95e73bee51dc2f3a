// SPDX-License-Identifier: Apache-2.0

package fieldswitch

const (
	// EventStopped reports that Torpor has stopped an object by setting its fields.
	EventStopped = "ObjectStopped"
	// EventRestored reports that an object was restored to its state before the stop, except for fields that have
	// changed since the stop.
	EventRestored = "ObjectRestored"
	// EventStartedByOthers reports that another writer has changed a field that a stop had set, and that Torpor does
	// not change the object until the next stop.
	EventStartedByOthers = "StartedByOthers"
	// EventLeftStopped reports that an object remains stopped although its kind can no longer be stopped, and why.
	EventLeftStopped = "LeftStopped"
	// EventStopRefused reports that an object is not stopped although a stop is requested, and why.
	EventStopRefused = "StopRefused"
)
