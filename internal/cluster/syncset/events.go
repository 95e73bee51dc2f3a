// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// EventSyncSetsFailed reports sets that a cluster or Torpor has refused, or has refused for a new reason.
	EventSyncSetsFailed = "SyncSetsFailed"
	// EventSyncSetsRecovered reports sets that were applied after they had been refused.
	EventSyncSetsRecovered = "SyncSetsRecovered"
	// EventCaughtUp reports that all sets were applied to a cluster after a hibernation.
	EventCaughtUp = "CaughtUp"
)

// syncAction is the action in events.
const syncAction = "Sync"

// events returns the events for the changes since the saved status. There is at most one for each reason, regardless of
// the number of sets.
func (s *situation) events(saved hiveinternalv1alpha1.ClusterSyncStatus) []decision.Event {
	var events []decision.Event
	before := readStatuses(saved)
	var failed, recovered []string
	for _, key := range slices.SortedFunc(maps.Keys(s.statuses), SetKey.Compare) {
		was, is := before[key], s.statuses[key]
		hadFailed := was.ObservedGeneration != 0 && was.Result == hiveinternalv1alpha1.FailureSyncSetResult
		switch {
		case is.ObservedGeneration == 0: // The set was not tried yet.
		case is.Result == hiveinternalv1alpha1.FailureSyncSetResult && (!hadFailed || was.FailureMessage != is.FailureMessage):
			failed = append(failed, key.String()+": "+is.FailureMessage)
		case is.Result == hiveinternalv1alpha1.SuccessSyncSetResult && hadFailed:
			recovered = append(recovered, key.String())
		}
	}
	if len(failed) > 0 {
		events = append(events, decision.Event{Warning: true, Reason: EventSyncSetsFailed, Action: syncAction, Note: joinSome(failed, "; ")})
	}
	if len(recovered) > 0 {
		events = append(events, decision.Event{Reason: EventSyncSetsRecovered, Action: syncAction, Note: "Applied after a failure: " + joinSome(recovered, ", ")})
	}
	// All sets were tried after the resume. The cluster has caught up if none was refused.
	if synced := s.Status.SyncedResume; synced != nil && !synced.Equal(saved.SyncedResume) && len(s.refused) == 0 {
		events = append(events, decision.Event{
			Reason: EventCaughtUp, Action: syncAction, Note: "All sets were applied to the cluster after the resume that began at " + synced.UTC().Format(time.RFC3339),
		})
	}
	return events
}

// joinSome joins the first texts, and appends how many were omitted.
func joinSome(texts []string, separator string) string {
	if more := len(texts) - maxNames; more > 0 {
		texts = append(slices.Clone(texts[:maxNames]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, separator)
}
