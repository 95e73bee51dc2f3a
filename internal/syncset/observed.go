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

// Reference names an object of a cluster.
type Reference = hiveinternalv1alpha1.SyncResourceReference

// SetKey names a set of a cluster.
type SetKey struct {
	// IsSelector says that it is a SelectorSyncSet.
	IsSelector bool
	Name       string
}

// String is how people call the set.
func (k SetKey) String() string {
	if k.IsSelector {
		return "SelectorSyncSet " + k.Name
	}
	return "SyncSet " + k.Name
}

// Compare orders sets as they are applied: SyncSets first, by name.
func (k SetKey) Compare(other SetKey) int {
	if k.IsSelector != other.IsSelector {
		if k.IsSelector {
			return 1
		}
		return -1
	}
	return cmp.Compare(k.Name, other.Name)
}

// ObservedSet is a set that is the cluster's now.
type ObservedSet struct {
	SetKey
	Generation int64
	// Deletes says that what leaves the set is deleted from the cluster.
	Deletes bool
	// References are its objects.
	References []Reference
	// Invalid says why the set cannot be applied; empty if it can be.
	Invalid string
}

// Result is what became of a set at the cluster.
type Result struct {
	SetKey
	Generation int64
	// Failure says which object was refused, and why; empty if all of the set is in the cluster.
	Failure string
}

// Answer is what became of a job. Sets that were not reached are in no result.
type Answer struct {
	Job     Job
	At      time.Time
	Results []Result
	// Deleted are those that are gone from the cluster, and NotDeleted says why one is not.
	Deleted    []Reference
	NotDeleted string
	// NoAnswer says why the cluster did not answer; empty if it did.
	NoAnswer string
}

// Attempt is the last one, as it is known since the process began.
type Attempt struct {
	// Fingerprint is that of its job, and RetryAt when the same is worth another one.
	Fingerprint string
	RetryAt     time.Time
	// NoAnswer says why the cluster did not answer; empty if it did. NotDeleted says why an object could not be deleted.
	NoAnswer, NotDeleted string
	// Reached are the sets that the full sync called Round has reached so far, with their generations.
	Round   string
	Reached map[SetKey]int64
}

// AddReached returns the attempt with what an answer has reached of a full sync, after the attempt before.
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

// Job is what is done at a cluster in one go.
type Job struct {
	// Sets are applied in this order.
	Sets []SetKey
	// Delete is deleted after that.
	Delete []Reference
	// IsFull says that all sets are applied, also those that have not changed, but for the ones that earlier jobs of the same Round have
	// reached.
	IsFull bool
	Round  string
	// Resume is when the last resume of the cluster began; nil if it never hibernated.
	Resume *metav1.Time
	// Fingerprint tells whether another job is for the same.
	Fingerprint string
}

// Observed is everything that the decision looks at.
type Observed struct {
	Now time.Time
	// UID is that of the ClusterSync.
	UID string
	// MayDial says that the cluster answered and is to run.
	MayDial bool
	// IsPaused says that an annotation keeps everything from being applied.
	IsPaused bool
	// Resume is when the last resume of the cluster began; nil if it never hibernated.
	Resume *metav1.Time
	// Sets are those of the cluster, and Excess how many more there are than are applied to one cluster.
	Sets   []ObservedSet
	Excess int
	// AreSelectorsUnread says that SelectorSyncSets are not read, so that none of them is known to be gone.
	AreSelectorsUnread bool
	Status             hiveinternalv1alpha1.ClusterSyncStatus
	// Answer is of a job that has not been reported yet; nil if there is none.
	Answer  *Answer
	Attempt Attempt
}

// Plan is what is done and reported.
type Plan struct {
	// Rule names the decision, for the log.
	Rule string
	// Job is handed in; nil for none.
	Job *Job
	// Status is the new one, but for its conditions.
	Status         hiveinternalv1alpha1.ClusterSyncStatus
	Failed, Synced decision.Condition
	// Events are what has become of the sets.
	Events       []decision.Event
	RequeueAfter time.Duration
}
