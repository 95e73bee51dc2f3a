// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Job describes how a cluster's MachineSets are read and changed. A job is never modified.
type Job struct {
	Spec       hivev1.MachinePoolSpec
	Generation int64
	// InfraID is the name prefix of MachineSets that the installer has created.
	InfraID string
	// OtherPools are the names of the other pools of the cluster.
	OtherPools []string
	// Resume is the start of the cluster's last resume; nil if no resume is recorded.
	Resume *metav1.Time
	// Fingerprint is a hash of the pool's generation, the infraID, the cluster's other pools, its connection settings
	// and its last resume.
	Fingerprint string
}

// Refusal reports why the MachineSets cannot match the pool. The cause is the pool's spec or the cluster.
type Refusal struct {
	// Reason is the reason of the condition.
	Reason  string
	Message string
}

// Answer is the result of a job. If the job was interrupted because the cluster may no longer be dialled, the answer is
// incomplete and has neither a Refusal nor a NoAnswer, but its Changes and MachineSets are valid.
type Answer struct {
	Job Job
	At  time.Time
	// MachineSets is the status of the MachineSets after the job; nil if the job did not read them.
	MachineSets []hivev1.MachineSetStatus
	// Changes describes the changes for users.
	Changes []string
	// IsComplete reports whether the MachineSets match the pool.
	IsComplete bool
	// Refusal explains why the MachineSets cannot match the pool; nil if they can.
	Refusal *Refusal
	// NoAnswer explains why the cluster did not respond. It is empty if the cluster responded.
	NoAnswer string
}

// Attempt is the last attempt since the process began.
type Attempt struct {
	// Fingerprint is the job's fingerprint. RetryAt is the earliest time of another attempt with the same
	// fingerprint.
	Fingerprint string
	RetryAt     time.Time
	// NoAnswer explains why the cluster did not respond. It is empty if the cluster responded.
	NoAnswer string
	// Refusal is the last refusal; nil after a success. Before is the refusal of the previous attempt. An event is
	// emitted only if the two differ.
	Refusal, Before *Refusal
}

// NextAttempt returns the attempt that results from the job's answer and the previous attempt.
func NextAttempt(before Attempt, answer *Answer, retryAt time.Time) Attempt {
	attempt := Attempt{Fingerprint: answer.Job.Fingerprint, RetryAt: retryAt, NoAnswer: answer.NoAnswer, Refusal: answer.Refusal, Before: before.Refusal}
	if answer.Refusal == nil && !answer.IsComplete {
		attempt.Refusal = before.Refusal // It is unknown whether the cause of the refusal still exists.
	}
	return attempt
}

// Observed holds all inputs of a decision.
type Observed struct {
	Now time.Time
	// UID and Name identify the MachinePool.
	UID, Name  string
	Spec       hivev1.MachinePoolSpec
	Generation int64
	Status     hivev1.MachinePoolStatus
	IsDeleting bool
	// HasCluster reports whether the ClusterDeployment exists. MayDial reports whether the cluster responded and is not
	// about to be stopped. IsPaused reports whether an annotation pauses all changes.
	HasCluster, MayDial, IsPaused bool
	InfraID                       string
	// Server identifies the connection settings of the cluster.
	Server string
	// Resume is the start of the cluster's last resume; nil if no resume is recorded.
	Resume *metav1.Time
	// Namesake is the name of an older MachinePool with the same spec.name in the cluster, or "". OtherPools are the
	// names of the other pools.
	Namesake   string
	OtherPools []string
	// Answer is the result of the last job; nil if the result was already reported.
	Answer  *Answer
	Attempt Attempt
}

// Plan holds the actions and the reported status.
type Plan struct {
	// Rule is the name of the matching rule, for the log.
	Rule string
	// Job is submitted to the runner, unless it is nil.
	Job *Job
	// Status is the new status, without its conditions.
	Status                         hivev1.MachinePoolStatus
	Synced, NotEnough, Unsupported decision.Condition
	// Events are the pool's events.
	Events       []decision.Event
	RequeueAfter time.Duration
}
