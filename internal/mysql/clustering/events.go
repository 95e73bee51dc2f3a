// SPDX-License-Identifier: Apache-2.0

package clustering

import "github.com/torpor-dev/torpor/internal/decision"

// Reasons of events.
const (
	EventPrimaryChosen    = "PrimaryChosen"
	EventWritable         = "Writable"
	EventSwitchOver       = "SwitchOver"
	EventSwitchOverFailed = "SwitchOverFailed"
	EventFailOver         = "FailOver"
	EventCloneFailed      = "CloneFailed"
	EventInitCloned       = "InitCloned"
	EventInitCloneFailed  = "InitCloneFailed"
	EventStarted          = "ClusteringStarted"
	EventStopped          = "ClusteringStopped"
	// EventStopEnded is a stop that ended by itself, at the time of the annotation torpor.dev/until; EventStopOverdue is one
	// that goes on after that time.
	EventStopEnded   = "StopEnded"
	EventStopOverdue = "StopOverdue"
)

// eventAction is what was tried, as events of a plan name it.
const eventAction = "Cluster"

func normalEvent(reason, note string) decision.Event {
	return decision.Event{Reason: reason, Action: eventAction, Note: note}
}

func warningEvent(reason, note string) decision.Event {
	return decision.Event{Warning: true, Reason: reason, Action: eventAction, Note: note}
}
