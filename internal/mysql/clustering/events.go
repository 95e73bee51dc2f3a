// SPDX-License-Identifier: Apache-2.0

package clustering

// Reasons of events.
const (
	// EventPrimaryChosen reports that an instance became the first primary.
	EventPrimaryChosen = "PrimaryChosen"
	// EventWritable reports that the primary is made writable.
	EventWritable = "Writable"
	// EventSwitchOver reports that a replica took the place of a primary that was well.
	EventSwitchOver = "SwitchOver"
	// EventSwitchOverFailed reports that no replica caught up in time, so that the primary stays.
	EventSwitchOverFailed = "SwitchOverFailed"
	// EventFailOver reports that a replica took the place of a primary that had failed.
	EventFailOver = "FailOver"
	// EventCommitsReleased reports that commits awaited replicas that could not come, and that the clients were cut off.
	EventCommitsReleased = "CommitsReleased"
	// EventCloneFailed reports that the copy of an instance failed and is begun anew.
	EventCloneFailed = "CloneFailed"
	// EventRecloned reports that an instance is emptied to become a copy of the primary, and which transactions that discards.
	EventRecloned = "Recloned"
	// EventInitCloned reports that the primary has become a copy of the source outside.
	EventInitCloned = "InitCloned"
	// EventInitCloneFailed reports that the copy of the source outside failed and is begun anew.
	EventInitCloneFailed = "InitCloneFailed"
	// EventPasswordsRotated reports that all accounts have new passwords, and the old ones are valid until they are discarded.
	EventPasswordsRotated = "PasswordsRotated"
	// EventPasswordsDiscarded reports that the old passwords of all accounts have ended.
	EventPasswordsDiscarded = "PasswordsDiscarded"
	// EventStarted reports that clustering is started again.
	EventStarted = "ClusteringStarted"
	// EventStartRefused reports that clustering stays stopped after somebody took the stop back, and why.
	EventStartRefused = "StartRefused"
	// EventStopped reports that clustering is stopped; a warning says what could not be finished.
	EventStopped = "ClusteringStopped"
	// EventStopOverdue reports that a stop goes on after the time of the annotation torpor.dev/until, and why.
	EventStopOverdue = "StopOverdue"
)
