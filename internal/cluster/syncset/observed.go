// SPDX-License-Identifier: Apache-2.0

package syncset

import (
	"cmp"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Reference identifies an object of a cluster.
type Reference = hiveinternalv1alpha1.SyncResourceReference

// SetKey identifies a set of a cluster.
type SetKey struct {
	// IsSelector reports whether the set is a SelectorSyncSet.
	IsSelector bool
	Name       string
}

// String returns the kind and the name of the set.
func (k SetKey) String() string {
	if k.IsSelector {
		return "SelectorSyncSet " + k.Name
	}
	return "SyncSet " + k.Name
}

// Compare orders sets in the order in which they are applied: SyncSets first, then by name.
func (k SetKey) Compare(other SetKey) int {
	if k.IsSelector != other.IsSelector {
		if k.IsSelector {
			return 1
		}
		return -1
	}
	return cmp.Compare(k.Name, other.Name)
}

// ObservedSet is a set that applies to the cluster now.
type ObservedSet struct {
	SetKey
	Generation int64
	// Deletes reports whether objects removed from the set are deleted from the cluster.
	Deletes bool
	// References are the set's resources and Secrets.
	References []Reference
	// Invalid explains why the set cannot be applied. It is empty if the set can be applied.
	Invalid string
}

// Result is the result of applying a set to a cluster.
type Result struct {
	SetKey
	Generation int64
	// Failure contains the refused object and the reason. It is empty if the whole set was applied.
	Failure string
}

// Answer is the result of a job. Sets that were not reached have no result.
type Answer struct {
	Job     Job
	At      time.Time
	Results []Result
	// Deleted are the objects that were deleted from the cluster. NotDeleted explains why one could not be deleted.
	Deleted    []Reference
	NotDeleted string
	// NoAnswer explains why the cluster did not respond. It is empty if the cluster responded.
	NoAnswer string
}

// Attempt is the last attempt since the process began.
type Attempt struct {
	// Fingerprint is the job's fingerprint. RetryAt is the earliest time of another attempt with the same
	// fingerprint.
	Fingerprint string
	RetryAt     time.Time
	// NoAnswer explains why the cluster did not respond. It is empty if the cluster responded. NotDeleted explains
	// why an object could not be deleted.
	NoAnswer, NotDeleted string
	// Reached are the sets that the full sync Round has processed so far, with their generations.
	Round   string
	Reached map[SetKey]int64
}

// AddReached returns the attempt with the sets that a job has processed in a full sync. The sets of the previous
// attempt are included.
func (a Attempt) AddReached(before Attempt, answer *Answer) Attempt {
	a.Round, a.Reached = before.Round, before.Reached
	if !answer.Job.IsFull {
		return a
	}
	if a.Reached = maps.Clone(before.Reached); a.Round != answer.Job.Round || a.Reached == nil {
		a.Round, a.Reached = answer.Job.Round, map[SetKey]int64{}
	}
	for _, r := range answer.Results {
		a.Reached[r.SetKey] = r.Generation
	}
	return a
}

// Job is the work in one connection to a cluster.
type Job struct {
	// Sets are the sets to apply, in this order.
	Sets []SetKey
	// Delete are the objects to delete after the sets are applied.
	Delete []Reference
	// IsFull reports whether all sets are applied, including unchanged ones. Sets that earlier jobs of the same Round
	// have processed are excluded.
	IsFull bool
	Round  string
	// Resume is the start of the cluster's last resume; nil if no resume is recorded.
	Resume *metav1.Time
	// Fingerprint is a hash of the cluster's sets, its connection settings and its last resume.
	Fingerprint string
}

// Observed holds all inputs of a decision.
type Observed struct {
	Now time.Time
	// UID is the UID of the ClusterSync.
	UID string
	// MayDial reports whether the cluster responded and is not about to be stopped.
	MayDial bool
	// IsPaused reports whether an annotation pauses all changes.
	IsPaused bool
	// Server identifies the connection settings of the cluster.
	Server string
	// Resume is the start of the cluster's last resume; nil if no resume is recorded.
	Resume *metav1.Time
	// Sets are the cluster's sets. Excess is the number of sets beyond the maximum for one cluster.
	Sets   []ObservedSet
	Excess int
	// AreSelectorsUnread reports that SelectorSyncSets are not read. No SelectorSyncSet may then be assumed to be
	// deleted.
	AreSelectorsUnread bool
	Status             hiveinternalv1alpha1.ClusterSyncStatus
	// Answer is the result of the last job; nil if the result was already reported.
	Answer  *Answer
	Attempt Attempt
}

// Plan holds the actions and the reported status.
type Plan struct {
	// Rule is the name of the matching rule, for the log.
	Rule string
	// Job is submitted to the applier, unless it is nil.
	Job *Job
	// Status is the new status, without its conditions.
	Status         hiveinternalv1alpha1.ClusterSyncStatus
	Failed, Synced decision.Condition
	// Events are the events of the sets.
	Events       []decision.Event
	RequeueAfter time.Duration
}
