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
	// EventMachineSetsChanged reports changes to a cluster's MachineSets and MachineAutoscalers.
	EventMachineSetsChanged = "MachineSetsChanged"
	// EventMachinePoolFailed reports that a cluster does not match its pool, or that the reason has changed.
	EventMachinePoolFailed = "MachinePoolFailed"
	// EventMachinePoolRecovered reports that a cluster matches its pool after a failure.
	EventMachinePoolRecovered = "MachinePoolRecovered"
	// EventMachinePoolCaughtUp reports that a cluster was read after a resume, and matches its pool.
	EventMachinePoolCaughtUp = "MachinePoolCaughtUp"
)

const (
	// applyAction is the action in events.
	applyAction = "ApplyMachinePool"
	// maxNames is the number of changes that an event lists.
	maxNames = 5
)

// events returns the events about the job's result, and about the changes since the saved status.
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
			note(false, EventMachinePoolRecovered, "The MachineSets match the pool after a failure")
		}
	}
	if synced := s.Status.SyncedResume; synced != nil && !synced.Equal(saved.SyncedResume) {
		note(false, EventMachinePoolCaughtUp, "The MachineSets match the pool after the resume that began at "+synced.UTC().Format(time.RFC3339))
	}
	return events
}

// joinSome joins the first texts, and appends how many were omitted.
func joinSome(texts []string) string {
	if more := len(texts) - maxNames; more > 0 {
		texts = append(slices.Clone(texts[:maxNames]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
