// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// lookInterval is the interval at which a cluster is read although its pool has not changed, because its
	// MachineSets may have been edited. Hive uses the same interval. While machines are not ready, startingInterval
	// applies. Up to a tenth is added, so a hub does not read all clusters at once.
	lookInterval     = 30 * time.Minute
	startingInterval = 5 * time.Minute
)

// situation is derived from an observation before a decision.
type situation struct {
	Observed
	fingerprint string
	// problem is an error that findProblem found without the cluster, or nil.
	problem *Refusal
}

// rules returns all rules of the decision. The first matching rule wins.
func rules() []decision.Rule[*situation, Plan] {
	return []decision.Rule[*situation, Plan]{
		{Name: "the pool is being deleted", When: (*situation).isBeingDeleted, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolDeletingReason, "The pool is being deleted; its MachineSets remain unchanged")
		}},
		{Name: "the ClusterDeployment is missing", When: (*situation).lacksCluster, Then: func(s *situation) Plan {
			return waitForEvent(hivev1.ClusterDeploymentMissingReason, fmt.Sprintf("Expected a ClusterDeployment %s in the namespace of the pool, found none", s.Spec.ClusterDeploymentRef.Name))
		}},
		{Name: "the pool is invalid", When: (*situation).isInvalid, Then: func(s *situation) Plan {
			return waitForEvent(s.problem.Reason, s.problem.Message)
		}},
		{Name: "the cluster matches the pool", When: (*situation).isSettled, Then: (*situation).rest},
		{Name: "changes to the pool are paused", When: (*situation).isPaused, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolPausedReason, "An annotation of the ClusterDeployment pauses changes to its MachineSets")
		}},
		{Name: "the cluster may not be dialled", When: (*situation).mayNotDial, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolWaitingReason, "Waiting until the cluster runs and its API server answers")
		}},
		{Name: "the next attempt must wait", When: (*situation).mustRest, Then: (*situation).awaitRetry},
		{Name: "read and change the MachineSets", When: decision.Always[*situation], Then: (*situation).apply},
	}
}

// isBeingDeleted reports whether the pool is being deleted.
func (s *situation) isBeingDeleted() bool { return s.IsDeleting }

// lacksCluster reports whether the ClusterDeployment of the pool does not exist.
func (s *situation) lacksCluster() bool { return !s.HasCluster }

// isInvalid reports whether the spec of the pool is malformed, or an older pool has the same spec.name.
func (s *situation) isInvalid() bool { return s.problem != nil }

// isSettled reports whether the cluster need not be read now.
func (s *situation) isSettled() bool { return !s.isDue() }

// isPaused reports whether an annotation of the ClusterDeployment pauses changes.
func (s *situation) isPaused() bool { return s.IsPaused }

// mayNotDial reports whether the cluster is not running, or does not respond.
func (s *situation) mayNotDial() bool { return !s.MayDial }

// mustRest reports whether the last attempt with the same fingerprint failed and is still backing off.
func (s *situation) mustRest() bool {
	return s.Attempt.Fingerprint == s.fingerprint && s.Now.Before(s.Attempt.RetryAt)
}

// Decide returns the plan for an observation. It is pure and total.
func Decide(seen Observed) Plan {
	s := &situation{Observed: seen}
	s.Status = *seen.Status.DeepCopy()
	s.fingerprint = s.readFingerprint()
	s.problem = s.findProblem()
	s.recordAnswer()
	plan, rule := decision.First(rules(), s)
	plan.Rule, plan.Status = rule, s.Status
	plan.NotEnough, plan.Unsupported = s.judgeConfiguration(plan.Synced)
	plan.Events = s.events(seen.Status)
	return plan
}

// recordAnswer copies the result of the last job into the status.
func (s *situation) recordAnswer() {
	if s.Answer == nil {
		return
	}
	if s.Answer.MachineSets != nil {
		s.Status.MachineSets, s.Status.Replicas = slices.Clone(s.Answer.MachineSets), 0
		for _, set := range s.Answer.MachineSets {
			s.Status.Replicas += set.Replicas
		}
	}
	if s.Answer.IsComplete {
		s.Status.ObservedGeneration, s.Status.SyncedResume = s.Answer.Job.Generation, s.Answer.Job.Resume.DeepCopy()
		s.Status.LastSyncTime = new(metav1.NewTime(s.Answer.At).Rfc3339Copy())
	}
}

// findProblem checks the pool without the cluster. Hive's CRD accepts numbers that contradict each other.
func (s *situation) findProblem() *Refusal {
	scaling := s.Spec.Autoscaling
	switch {
	case s.Namesake != "":
		return &Refusal{hivev1.AmbiguousPoolReason, fmt.Sprintf("The MachinePool %s is older and has the same spec.name; delete one of the two MachinePools", s.Namesake)}
	case scaling != nil && s.Spec.Replicas != nil:
		return &Refusal{hivev1.InvalidReplicasReason, "Expected spec.replicas or spec.autoscaling, found both; remove one"}
	case scaling != nil && (scaling.MinReplicas < 0 || scaling.MaxReplicas < 1 || scaling.MinReplicas > scaling.MaxReplicas || scaling.MaxReplicas > maxReplicas):
		return &Refusal{hivev1.InvalidReplicasReason, fmt.Sprintf("Expected 0 <= minReplicas <= maxReplicas and 1 <= maxReplicas <= %d, found %d and %d", maxReplicas, scaling.MinReplicas, scaling.MaxReplicas)}
	case s.Spec.Replicas != nil && (*s.Spec.Replicas < 0 || *s.Spec.Replicas > maxReplicas):
		return &Refusal{hivev1.InvalidReplicasReason, fmt.Sprintf("Expected spec.replicas from 0 to %d, found %d", maxReplicas, *s.Spec.Replicas)}
	default:
		return nil
	}
}

// isDue reports whether the cluster must be read. The interval applies only while the cluster may be dialled, because
// nothing changes in a hibernating cluster.
func (s *situation) isDue() bool {
	return s.Status.LastSyncTime == nil || s.Status.ObservedGeneration != s.Generation || !s.Status.SyncedResume.Equal(s.Resume) ||
		s.MayDial && !s.IsPaused && !s.Now.Before(s.nextLook())
}

func (s *situation) nextLook() time.Time {
	interval := lookInterval
	if slices.ContainsFunc(s.Status.MachineSets, func(set hivev1.MachineSetStatus) bool { return set.ReadyReplicas != set.Replicas }) {
		interval = startingInterval
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(s.UID))
	const spread = 1000
	return s.Status.LastSyncTime.Add(interval + interval/10*time.Duration(hash.Sum32()%spread)/spread)
}

// readFingerprint returns a hash of the pool's generation, the infraID, the cluster's other pools, the connection
// settings and the last resume. After one of them has changed, an earlier failure does not delay the next attempt.
func (s *situation) readFingerprint() string {
	hash := fnv.New64a()
	// The order of the cached pools is not stable.
	_, _ = fmt.Fprintf(hash, "%d %q %q %q", s.Generation, s.InfraID, s.Server, slices.Sorted(slices.Values(s.OtherPools)))
	if s.Resume != nil {
		_, _ = fmt.Fprint(hash, s.Resume.Unix())
	}
	return fmt.Sprintf("%x", hash.Sum64())
}

func (s *situation) rest() Plan {
	plan := Plan{Synced: decision.True(hivev1.MachineSetsAsWishedReason, "The MachineSets matched the pool when they were last read")}
	if s.MayDial && !s.IsPaused {
		plan.RequeueAfter = s.nextLook().Sub(s.Now)
	}
	return plan
}

// waitForEvent plans no action until an object changes.
func waitForEvent(reason, message string) Plan {
	return Plan{Synced: decision.False(reason, message)}
}

func (s *situation) awaitRetry() Plan {
	plan := Plan{RequeueAfter: s.Attempt.RetryAt.Sub(s.Now)}
	if s.Attempt.NoAnswer != "" || s.Attempt.Refusal == nil {
		plan.Synced = decision.False(hivev1.MachinePoolNoAnswerReason, fmt.Sprintf("The cluster did not answer while its MachineSets were read (%s)", s.Attempt.NoAnswer))
		return plan
	}
	plan.Synced = decision.False(s.Attempt.Refusal.Reason, s.Attempt.Refusal.Message)
	return plan
}

func (s *situation) apply() Plan {
	return Plan{
		Job: &Job{
			Spec: *s.Spec.DeepCopy(), Generation: s.Generation, InfraID: s.InfraID, OtherPools: s.OtherPools, Resume: s.Resume.DeepCopy(),
			Fingerprint: s.fingerprint,
		},
		Synced: decision.False(hivev1.MachineSetsApplyingReason, "The MachineSets are being read"),
	}
}

// judgeConfiguration returns the conditions about the pool's configuration. They are Unknown from a change to the
// pool until the next read of the cluster.
func (s *situation) judgeConfiguration(synced decision.Condition) (notEnough, unsupported decision.Condition) {
	notEnough = decision.False(hivev1.EnoughReplicasReason, "There are enough replicas for the MachineSets")
	unsupported = decision.False(hivev1.ConfigurationSupportedReason, "The cluster and Torpor support every setting of the pool")
	refusal := s.problem
	if refusal == nil && s.Attempt.Fingerprint == s.fingerprint && s.isDue() {
		refusal = s.Attempt.Refusal
	}
	switch {
	case refusal == nil && s.Status.ObservedGeneration != s.Generation:
		unknown := decision.Unknown(synced.Reason, "The cluster has not been read since the pool changed")
		return unknown, unknown
	case refusal == nil, refusal.Reason == hivev1.MachinePoolRefusedReason:
		return notEnough, unsupported
	case refusal.Reason == hivev1.MinReplicasTooSmallReason:
		return decision.True(refusal.Reason, refusal.Message), unsupported
	default:
		return notEnough, decision.True(refusal.Reason, refusal.Message)
	}
}
