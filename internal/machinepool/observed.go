// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Job is one look at a cluster, with what is changed of it. It is only read.
type Job struct {
	Spec       hivev1.MachinePoolSpec
	Generation int64
	// InfraID begins the names of the MachineSets that the installer has made.
	InfraID string
	// OtherPools are the names of the other pools of the cluster.
	OtherPools []string
	// Resume is when the last resume of the cluster began; nil if it never hibernated.
	Resume *metav1.Time
	// Fingerprint tells whether another job is for the same.
	Fingerprint string
}

// Refusal is why the MachineSets cannot be as the pool says: by its spec alone, or by what the cluster has.
type Refusal struct {
	// Reason is that of the condition.
	Reason  string
	Message string
}

// Answer is what became of a job. One that was cut short, because its cluster went to sleep, is neither complete nor has it a Refusal or a
// NoAnswer; its Changes and its MachineSets count.
type Answer struct {
	Job Job
	At  time.Time
	// MachineSets are as the job has left them; nil if they were not read.
	MachineSets []hivev1.MachineSetStatus
	// Changes are what was changed, for people.
	Changes []string
	// IsComplete says that everything is as the pool says.
	IsComplete bool
	// Refusal is why not; nil for none.
	Refusal *Refusal
	// NoAnswer says why the cluster did not answer; empty if it did.
	NoAnswer string
}

// Attempt is the last one, as it is known since the process began.
type Attempt struct {
	// Fingerprint is that of its job, and RetryAt when the same is worth another one.
	Fingerprint string
	RetryAt     time.Time
	// NoAnswer says why the cluster did not answer; empty if it did.
	NoAnswer string
	// Refusal is the last one; nil since a success. Before is the one of the attempt before.
	Refusal, Before *Refusal
}

// NextAttempt returns the attempt that follows from an answer and the attempt before it.
func NextAttempt(before Attempt, answer *Answer, retryAt time.Time) Attempt {
	attempt := Attempt{Fingerprint: answer.Job.Fingerprint, RetryAt: retryAt, NoAnswer: answer.NoAnswer, Refusal: answer.Refusal, Before: before.Refusal}
	if answer.Refusal == nil && !answer.IsComplete {
		attempt.Refusal = before.Refusal // A cluster that did not answer has not recovered.
	}
	return attempt
}

// Observed is everything that the decision looks at.
type Observed struct {
	Now time.Time
	// UID and Name are those of the MachinePool.
	UID, Name  string
	Spec       hivev1.MachinePoolSpec
	Generation int64
	Status     hivev1.MachinePoolStatus
	IsDeleting bool
	// HasCluster says that there is the ClusterDeployment, MayDial that it answered and is to run, and IsPaused that an annotation keeps
	// everything from being changed.
	HasCluster, MayDial, IsPaused bool
	InfraID                       string
	// Resume is when the last resume of the cluster began; nil if it never hibernated.
	Resume *metav1.Time
	// Namesake is an older MachinePool of the same pool of the cluster; empty if there is none. OtherPools are the names of the other pools.
	Namesake   string
	OtherPools []string
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
	Status                         hivev1.MachinePoolStatus
	Synced, NotEnough, Unsupported decision.Condition
	// Events are what has become of the pool.
	Events       []decision.Event
	RequeueAfter time.Duration
}
