// SPDX-License-Identifier: Apache-2.0

package clustering

// These are the reasons of events.
const (
	// EventPrimaryChosen reports that an instance became the first primary.
	EventPrimaryChosen = "PrimaryChosen"
	// EventWritable reports that the primary was made writable.
	EventWritable = "Writable"
	// EventSwitchOver reports that a replica replaced a healthy primary.
	EventSwitchOver = "SwitchOver"
	// EventSwitchOverFailed reports that no replica caught up in time, so the primary was kept.
	EventSwitchOverFailed = "SwitchOverFailed"
	// EventFailOver reports that a replica replaced a failed primary.
	EventFailOver = "FailOver"
	// EventCommitsReleased reports that commits waited for replicas that could not connect or be cloned, and that the
	// client sessions were killed.
	EventCommitsReleased = "CommitsReleased"
	// EventCloneFailed reports that the clone of the primary to an instance failed and will be retried.
	EventCloneFailed = "CloneFailed"
	// EventRecloned reports that an instance is emptied so that it can be cloned from the primary. It lists or counts
	// the errant transactions that the re-clone discards.
	EventRecloned = "Recloned"
	// EventInitCloned reports that the primary has become a copy of the external server.
	EventInitCloned = "InitCloned"
	// EventInitCloneFailed reports that the copy of the external server failed and will be retried.
	EventInitCloneFailed = "InitCloneFailed"
	// EventPasswordsRotated reports that all accounts have new passwords, and that the old passwords stay valid until
	// they are discarded.
	EventPasswordsRotated = "PasswordsRotated"
	// EventPasswordsDiscarded reports that the old passwords of all accounts are no longer valid.
	EventPasswordsDiscarded = "PasswordsDiscarded"
	// EventStarted reports that clustering is started again.
	EventStarted = "ClusteringStarted"
	// EventStartRefused reports that clustering stays stopped although the stop was withdrawn, with the reason.
	EventStartRefused = "StartRefused"
	// EventStopped reports that clustering is stopped. It is a warning if work was left unfinished.
	EventStopped = "ClusteringStopped"
	// EventStopOverdue reports that a stop of clustering continues beyond its end time, with the reason.
	EventStopOverdue = "StopOverdue"
)
