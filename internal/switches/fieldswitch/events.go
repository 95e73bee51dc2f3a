// SPDX-License-Identifier: Apache-2.0

package fieldswitch

const (
	// EventStopped reports that an object that Torpor stops by a switch was stopped.
	EventStopped = "ObjectStopped"
	// EventRestored reports that such an object was restored to its state before the stop.
	EventRestored = "ObjectRestored"
	// EventStartedByOthers reports that another writer has changed a field that a stop had set, and that the object
	// is left alone.
	EventStartedByOthers = "StartedByOthers"
	// EventLeftStopped reports that such an object stays stopped although its kind can no longer be stopped, and why.
	EventLeftStopped = "LeftStopped"
	// EventStopRefused reports that such an object is not stopped although a stop is requested, and why.
	EventStopRefused = "StopRefused"
)
