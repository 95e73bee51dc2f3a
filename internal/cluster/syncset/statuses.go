// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
)

// maxMessageBytes and maxRecorded are the limits of failureMessage and resourcesToDelete in the schema.
const maxMessageBytes, maxRecorded = 1024, 2000

// setStatus is the recorded status of one set.
type setStatus hiveinternalv1alpha1.SyncStatus

// statuses are the recorded statuses of a cluster's sets, including deleted sets that still have objects in the
// cluster.
type statuses map[SetKey]setStatus

func readStatuses(status hiveinternalv1alpha1.ClusterSyncStatus) statuses {
	all := statuses{}
	for _, one := range status.SyncSets {
		all[SetKey{Name: one.Name}] = setStatus(*one.DeepCopy())
	}
	for _, one := range status.SelectorSyncSets {
		all[SetKey{IsSelector: true, Name: one.Name}] = setStatus(*one.DeepCopy())
	}
	return all
}

func (all statuses) write(status *hiveinternalv1alpha1.ClusterSyncStatus) {
	status.SyncSets, status.SelectorSyncSets = nil, nil
	for _, key := range slices.SortedFunc(maps.Keys(all), SetKey.Compare) {
		one := hiveinternalv1alpha1.SyncStatus(all[key])
		if key.IsSelector {
			status.SelectorSyncSets = append(status.SelectorSyncSets, one)
		} else {
			status.SyncSets = append(status.SyncSets, one)
		}
	}
}

// missing returns the references that are not recorded.
func (s setStatus) missing(references []Reference) []Reference {
	known := toSet(s.ResourcesToDelete)
	var missing []Reference
	for _, r := range references {
		if !known[r] {
			known[r] = true
			missing = append(missing, r)
		}
	}
	return missing
}

// fitsRecord reports whether the objects of a set can be recorded. If the cluster refuses to delete earlier objects of
// the set, the list could otherwise exceed its limit, and the API server would reject every later status. Such a set is
// applied once enough objects are deleted, and the status reports this.
func (s *situation) fitsRecord(set ObservedSet) bool {
	status := s.statuses[set.SetKey]
	added := len(status.missing(set.References))
	if !set.Deletes || len(status.ResourcesToDelete)+added <= maxRecorded {
		return true
	}
	old := len(status.ResourcesToDelete) + added - len(toSet(set.References))
	failure := fmt.Sprintf("Expected at most %d recorded objects of a set, found %d, %d of them to be deleted, and %d new ones; the set is applied once the cluster has deleted enough objects",
		maxRecorded, len(status.ResourcesToDelete), old, added)
	s.statuses.note(Result{SetKey: set.SetKey, Generation: set.Generation, Failure: failure}, s.stamp())
	return false
}

// record adds the objects that a set will have in the cluster to the resourcesToDelete of the set's status.
func (all statuses) record(set ObservedSet, now *metav1.Time) {
	status, isKnown := all[set.SetKey]
	if !isKnown {
		status = setStatus{Name: set.Name, Result: hiveinternalv1alpha1.FailureSyncSetResult, FailureMessage: "The set has not been applied yet", LastTransitionTime: *now}
	}
	status.ResourcesToDelete = append(status.ResourcesToDelete, status.missing(set.References)...)
	all[set.SetKey] = status
}

// note records the result of a set.
func (all statuses) note(r Result, now *metav1.Time) {
	status := all[r.SetKey]
	result := hiveinternalv1alpha1.SuccessSyncSetResult
	if r.Failure != "" {
		result = hiveinternalv1alpha1.FailureSyncSetResult
	}
	if status.Result != result || status.LastTransitionTime.IsZero() || status.ObservedGeneration == 0 {
		status.LastTransitionTime = *now
	}
	if r.Failure == "" && status.FirstSuccessTime == nil {
		status.FirstSuccessTime = now
	}
	status.Name, status.ObservedGeneration, status.Result = r.Name, r.Generation, result
	status.FailureMessage = strings.ToValidUTF8(r.Failure[:min(len(r.Failure), maxMessageBytes)], "")
	all[r.SetKey] = status
}

func toSet(references []Reference) map[Reference]bool {
	set := map[Reference]bool{}
	for _, r := range references {
		set[r] = true
	}
	return set
}

// stamp returns the current time in the precision of a status.
func (s *situation) stamp() *metav1.Time {
	return new(metav1.NewTime(s.Now).Rfc3339Copy())
}

// recordAnswer copies the results of the last job into the statuses.
func (s *situation) recordAnswer() {
	if s.Answer == nil {
		return
	}
	for _, r := range s.Answer.Results {
		if slices.ContainsFunc(s.Sets, func(set ObservedSet) bool { return set.SetKey == r.SetKey }) || len(s.statuses[r.SetKey].ResourcesToDelete) > 0 {
			s.statuses.note(r, s.stamp())
		}
	}
	deleted := toSet(s.Answer.Deleted)
	for key, status := range s.statuses {
		status.ResourcesToDelete = slices.DeleteFunc(status.ResourcesToDelete, func(r Reference) bool { return deleted[r] })
		s.statuses[key] = status
	}
	if s.Answer.Job.IsFull && len(s.Answer.Results) == len(s.Answer.Job.Sets) {
		s.Status.LastSyncTime, s.Status.SyncedResume = new(metav1.NewTime(s.Answer.At).Rfc3339Copy()), s.Answer.Job.Resume
	}
}

// settleStatuses drops statuses that are no longer needed, and records which sets cannot be applied.
func (s *situation) settleStatuses() {
	current := map[SetKey]bool{}
	for _, set := range s.Sets {
		current[set.SetKey] = true
		status := s.statuses[set.SetKey]
		if !set.Deletes && set.Invalid == "" && len(status.ResourcesToDelete) > 0 {
			status.ResourcesToDelete = nil
			s.statuses[set.SetKey] = status
		}
		if set.Invalid != "" && (status.ObservedGeneration != set.Generation || status.FailureMessage != set.Invalid) {
			s.statuses.note(Result{SetKey: set.SetKey, Generation: set.Generation, Failure: set.Invalid}, s.stamp())
		}
	}
	if s.Excess > 0 {
		return // Sets beyond the maximum are not deleted.
	}
	maps.DeleteFunc(s.statuses, func(key SetKey, status setStatus) bool { return !current[key] && len(status.ResourcesToDelete) == 0 })
}

// isUnread reports whether a set is a SelectorSyncSet that is not read. It may still apply to the cluster, so its
// status and its objects in the cluster must be kept.
func (s *situation) isUnread(key SetKey) bool { return key.IsSelector && s.AreSelectorsUnread }

// findOrphans returns the objects to delete from the cluster. It also removes objects that now belong to another set
// from the recorded objects of a set. No object is deleted while the content of any set is unknown.
func (s *situation) findOrphans() []Reference {
	if s.Excess > 0 || slices.ContainsFunc(s.Sets, func(set ObservedSet) bool { return set.Invalid != "" }) {
		return nil
	}
	wanted, bySet := map[Reference]bool{}, map[SetKey]map[Reference]bool{}
	for _, set := range s.Sets {
		bySet[set.SetKey] = toSet(set.References)
		maps.Copy(wanted, bySet[set.SetKey])
	}
	for key, status := range s.statuses {
		if s.isUnread(key) {
			bySet[key] = toSet(status.ResourcesToDelete)
			maps.Copy(wanted, bySet[key])
		}
	}
	var orphans []Reference
	for _, key := range slices.SortedFunc(maps.Keys(s.statuses), SetKey.Compare) {
		status := s.statuses[key]
		status.ResourcesToDelete = slices.DeleteFunc(status.ResourcesToDelete, func(r Reference) bool { return wanted[r] && !bySet[key][r] })
		for _, r := range status.ResourcesToDelete {
			if !wanted[r] {
				orphans = append(orphans, r)
			}
		}
		if s.statuses[key] = status; bySet[key] == nil && len(status.ResourcesToDelete) == 0 {
			delete(s.statuses, key)
		}
	}
	return orphans
}
