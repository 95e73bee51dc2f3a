// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// MaxSets is the maximum number of sets of one cluster.
	MaxSets = 100
	// maxReferences is the maximum number of objects with the mode Sync in one cluster. One ClusterSync contains all
	// their names.
	maxReferences = 5000
	// syncInterval is the time after which unchanged sets are applied again, because their objects or a source Secret
	// may have changed. Up to a tenth is added, so a hub does not apply sets to all clusters at once.
	syncInterval = 2 * time.Hour
	// recordRetry is the delay until the next pass after the objects to apply have been recorded.
	recordRetry = time.Millisecond
	// maxNames is the number of sets that a message lists.
	maxNames = 5
)

// situation is derived from an observation before a decision.
type situation struct {
	Observed
	statuses statuses
	// due are the sets to apply: those whose current content is not in the cluster, or all sets in a full sync. orphans
	// are the objects to delete from the cluster.
	due     []ObservedSet
	orphans []Reference
	isFull  bool
	refused []string
}

// rules returns all rules of the decision. The first matching rule wins.
func rules() []decision.Rule[*situation, Plan] {
	return []decision.Rule[*situation, Plan]{
		{Name: "everything is applied", When: (*situation).isSettled, Then: (*situation).rest},
		{Name: "changes to the cluster are paused", When: (*situation).isPaused, Then: func(s *situation) Plan {
			return s.wait(hiveinternalv1alpha1.SyncPausedReason, "An annotation of the ClusterDeployment pauses these changes: "+s.nameWork())
		}},
		{Name: "the cluster may not be dialled", When: (*situation).mayNotDial, Then: func(s *situation) Plan {
			return s.wait(hiveinternalv1alpha1.WaitingForClusterReason, "Waiting until the cluster runs and its API server answers; pending: "+s.nameWork())
		}},
		{Name: "objects to apply are recorded", When: (*situation).needsRecord, Then: (*situation).record},
		{Name: "the next attempt must wait", When: (*situation).mustRest, Then: (*situation).awaitRetry},
		{Name: "apply the sets", When: decision.Always[*situation], Then: (*situation).apply},
	}
}

// isSettled reports whether no set must be applied and no object deleted.
func (s *situation) isSettled() bool { return len(s.due) == 0 && len(s.orphans) == 0 }

// isPaused reports whether an annotation of the ClusterDeployment pauses changes.
func (s *situation) isPaused() bool { return s.IsPaused }

// mayNotDial reports whether the cluster is not running, or does not respond.
func (s *situation) mayNotDial() bool { return !s.MayDial }

// mustRest reports whether the last attempt failed for the current state and is still backing off.
func (s *situation) mustRest() bool {
	return s.Attempt.Fingerprint == s.fingerprint() && s.Now.Before(s.Attempt.RetryAt)
}

// Decide returns the plan for an observation. It is pure and total.
func Decide(seen Observed) Plan {
	s := &situation{Observed: seen, statuses: readStatuses(seen.Status)}
	s.Status = *seen.Status.DeepCopy()
	s.Sets = slices.Clone(seen.Sets)
	s.limitReferences()
	s.recordAnswer()
	s.settleStatuses()
	s.isFull = len(s.Sets) > 0 && (s.Status.LastSyncTime == nil || !s.Status.SyncedResume.Equal(s.Resume) || !s.Now.Before(s.nextSync()))
	for _, set := range s.Sets {
		status := s.statuses[set.SetKey]
		isApplied := status.Result == hiveinternalv1alpha1.SuccessSyncSetResult && status.ObservedGeneration == set.Generation
		if isDue := set.Invalid == "" && (s.isFull && !s.isReached(set) || !isApplied); isDue && s.fitsRecord(set) {
			s.due = append(s.due, set)
		}
	}
	if s.isFull && len(s.due) == 0 { // All sets were processed: the last missing set was deleted or is invalid.
		s.isFull, s.Status.LastSyncTime, s.Status.SyncedResume = false, s.stamp(), s.Resume.DeepCopy()
	}
	s.orphans = s.findOrphans()
	s.refused = s.describeRefusals()
	plan, rule := decision.First(rules(), s)
	plan.Rule = rule
	plan.Failed = decision.False(hiveinternalv1alpha1.SyncSuccessReason, "No set was refused")
	if len(s.refused) > 0 {
		plan.Failed = decision.True(hiveinternalv1alpha1.SyncFailureReason, strings.Join(s.refused, "; "))
	}
	plan.Status, plan.Events = s.Status, s.events(seen.Status)
	s.statuses.write(&plan.Status)
	return plan
}

// limitReferences refuses sets with the mode Sync once their objects exceed the number of names that one ClusterSync
// can contain.
func (s *situation) limitReferences() {
	total := 0
	for i := range s.Sets {
		if set := &s.Sets[i]; set.Deletes {
			if total += len(set.References); total > maxReferences && set.Invalid == "" {
				set.Invalid = fmt.Sprintf("Expected at most %d objects in all sets of a cluster with the mode Sync; use the mode Upsert, or remove objects", maxReferences)
			}
		}
	}
}

// round identifies a full sync. It changes with each resume, and when the sync is complete.
func (s *situation) round() string {
	name := "first"
	if s.Status.LastSyncTime != nil {
		name = "after " + s.Status.LastSyncTime.UTC().Format(time.RFC3339)
	}
	if s.Resume != nil {
		name += ", resume " + s.Resume.UTC().Format(time.RFC3339)
	}
	return name
}

// isReached reports whether an earlier job of the same full sync has processed the set.
func (s *situation) isReached(set ObservedSet) bool {
	generation, isThere := s.Attempt.Reached[set.SetKey]
	return isThere && s.Attempt.Round == s.round() && generation == set.Generation
}

func (s *situation) nextSync() time.Time {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(s.UID))
	const spread = 1000
	return s.Status.LastSyncTime.Add(syncInterval + syncInterval/10*time.Duration(hash.Sum32()%spread)/spread)
}

// fingerprint changes with the wanted content of the cluster, the connection settings, and each resume. After a
// change, an earlier failure does not delay the next attempt.
func (s *situation) fingerprint() string {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%q;", s.Server)
	for _, set := range s.Sets {
		_, _ = fmt.Fprintf(hash, "%s %d %t;", set.SetKey, set.Generation, set.Deletes)
	}
	if s.Resume != nil {
		_, _ = fmt.Fprint(hash, s.Resume.Unix())
	}
	return fmt.Sprintf("%x", hash.Sum64())
}

// nameWork returns the names of the sets to apply, and the number of objects to delete.
func (s *situation) nameWork() string {
	var parts []string
	for i, set := range s.due {
		if i == maxNames {
			parts = append(parts, fmt.Sprintf("and %d more", len(s.due)-maxNames))
			break
		}
		parts = append(parts, set.String())
	}
	if n := len(s.orphans); n > 0 {
		parts = append(parts, fmt.Sprintf("%d objects to delete", n))
	}
	return strings.Join(parts, ", ")
}

func (s *situation) describeRefusals() []string {
	var refused []string
	if s.Excess > 0 {
		refused = append(refused, fmt.Sprintf("Expected at most %d sets for a cluster, found %d more, which are not applied", MaxSets, s.Excess))
	}
	if names := s.listUnread(); len(names) > 0 {
		refused = append(refused, "SelectorSyncSets are not read with --watch-namespaces, so their objects in the cluster stay unchanged: "+joinSome(names, ", "))
	}
	if s.Attempt.NotDeleted != "" && len(s.orphans) > 0 {
		refused = append(refused, s.Attempt.NotDeleted)
	}
	more := 0
	for _, set := range s.Sets {
		status := s.statuses[set.SetKey]
		if status.Result != hiveinternalv1alpha1.FailureSyncSetResult || status.ObservedGeneration == 0 {
			continue
		}
		if len(refused) >= maxNames {
			more++
			continue
		}
		refused = append(refused, fmt.Sprintf("%s: %s", set.SetKey, status.FailureMessage))
	}
	if more > 0 {
		refused = append(refused, fmt.Sprintf("and %d more sets", more))
	}
	return refused
}

// listUnread returns the names of SelectorSyncSets that are not read but have objects in the cluster.
func (s *situation) listUnread() []string {
	var names []string
	for _, key := range slices.SortedFunc(maps.Keys(s.statuses), SetKey.Compare) {
		if s.isUnread(key) {
			names = append(names, key.Name)
		}
	}
	return names
}

func (s *situation) rest() Plan {
	plan := Plan{Synced: decision.True(hiveinternalv1alpha1.AllAppliedReason, "The current content of all sets is applied")}
	if len(s.refused) > 0 {
		plan.Synced = decision.False(hiveinternalv1alpha1.SyncFailureReason, strings.Join(s.refused, "; "))
	} else if s.Status.FirstSuccessTime == nil && len(s.Sets) > 0 {
		s.Status.FirstSuccessTime = s.stamp()
	}
	if s.Status.LastSyncTime != nil && len(s.Sets) > 0 && s.MayDial {
		plan.RequeueAfter = s.nextSync().Sub(s.Now)
	}
	return plan
}

// wait plans no action until an object changes.
func (s *situation) wait(reason, message string) Plan {
	return Plan{Synced: decision.False(reason, message)}
}

// needsRecord reports whether a set would create objects that the status does not list yet. After a crash of the
// manager, such objects would never be deleted.
func (s *situation) needsRecord() bool {
	return slices.ContainsFunc(s.due, func(set ObservedSet) bool {
		return set.Deletes && len(s.statuses[set.SetKey].missing(set.References)) > 0
	})
}

func (s *situation) record() Plan {
	for _, set := range s.due {
		if set.Deletes {
			s.statuses.record(set, s.stamp())
		}
	}
	return Plan{Synced: decision.False(hiveinternalv1alpha1.ApplyingReason, "Being applied: "+s.nameWork()), RequeueAfter: recordRetry}
}

func (s *situation) awaitRetry() Plan {
	plan := Plan{RequeueAfter: s.Attempt.RetryAt.Sub(s.Now)}
	if s.Attempt.NoAnswer != "" {
		plan.Synced = decision.False(hiveinternalv1alpha1.NoAnswerReason, fmt.Sprintf("Not applied yet, because the cluster did not answer (%s): %s", s.Attempt.NoAnswer, s.nameWork()))
		return plan
	}
	plan.Synced = decision.False(hiveinternalv1alpha1.SyncFailureReason, "The cluster rejected changes of: "+s.nameWork())
	return plan
}

func (s *situation) apply() Plan {
	job := &Job{Delete: s.orphans, IsFull: s.isFull, Resume: s.Resume.DeepCopy(), Fingerprint: s.fingerprint()}
	if s.isFull {
		job.Round = s.round()
	}
	for _, set := range s.due {
		job.Sets = append(job.Sets, set.SetKey)
	}
	return Plan{Job: job, Synced: decision.False(hiveinternalv1alpha1.ApplyingReason, "Being applied: "+s.nameWork())}
}
