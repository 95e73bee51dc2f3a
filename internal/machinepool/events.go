// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// EventMachineSetsChanged reports what was changed of the MachineSets and MachineAutoscalers of a cluster.
	EventMachineSetsChanged = "MachineSetsChanged"
	// EventMachinePoolFailed reports that a cluster is not as its pool says, or not for another reason than before.
	EventMachinePoolFailed = "MachinePoolFailed"
	// EventMachinePoolRecovered reports that it is after that.
	EventMachinePoolRecovered = "MachinePoolRecovered"
	// EventMachinePoolCaughtUp reports that a cluster was looked at, and is as its pool says, after it hibernated.
	EventMachinePoolCaughtUp = "MachinePoolCaughtUp"
)

const (
	// applyAction is what was tried, as events name it.
	applyAction = "ApplyMachinePool"
	// maxNames is how many changes an event names.
	maxNames = 5
)

// events are what has happened to the pool since the status was written.
func (s *situation) events(saved hivev1.MachinePoolStatus) []decision.Event {
	var events []decision.Event
	note := func(isWarning bool, reason, text string) {
		events = append(events, decision.Event{Warning: isWarning, Reason: reason, Action: applyAction, Note: text})
	}
	if a := s.Answer; a != nil {
		if len(a.Changes) > 0 {
			note(false, EventMachineSetsChanged, joinSome(a.Changes))
		}
		if before := s.Attempt.Before; a.Refusal != nil && (before == nil || *before != *a.Refusal) {
			note(true, EventMachinePoolFailed, a.Refusal.Message)
		} else if a.IsComplete && before != nil {
			note(false, EventMachinePoolRecovered, "The MachineSets are as the pool says after a failure")
		}
	}
	if synced := s.Status.SyncedResume; synced != nil && !synced.Equal(saved.SyncedResume) {
		note(false, EventMachinePoolCaughtUp, "The MachineSets are as the pool says after the resume that began at "+synced.UTC().Format(time.RFC3339))
	}
	return events
}

// joinSome joins the first texts, and says how many there are beside them.
func joinSome(texts []string) string {
	if more := len(texts) - maxNames; more > 0 {
		texts = append(slices.Clone(texts[:maxNames]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
