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
	// lookInterval is when a cluster is looked at again whose pool has not changed, because somebody may have changed its MachineSets; as in
	// Hive. While machines are not ready it is startingInterval. Up to a tenth is added, so that a hub does not do it for all at once.
	lookInterval     = 30 * time.Minute
	startingInterval = 5 * time.Minute
)

// situation is what follows from an observation before anything is decided.
type situation struct {
	Observed
	fingerprint string
	// problem is what the pool says that makes no sense by itself; nil if it does.
	problem *Refusal
}

// rules are all that there is to decide; the first that matches wins.
func rules() []decision.Rule[*situation, Plan] {
	return []decision.Rule[*situation, Plan]{
		{Name: "the pool is being deleted", When: func(s *situation) bool { return s.IsDeleting }, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolDeletingReason, "The pool is being deleted; its MachineSets stay as they are")
		}},
		{Name: "there is no cluster", When: func(s *situation) bool { return !s.HasCluster }, Then: func(s *situation) Plan {
			return waitForEvent(hivev1.ClusterDeploymentMissingReason, fmt.Sprintf("Expected a ClusterDeployment %s in the namespace of the pool, found none", s.Spec.ClusterDeploymentRef.Name))
		}},
		{Name: "the pool makes no sense", When: func(s *situation) bool { return s.problem != nil }, Then: func(s *situation) Plan {
			return waitForEvent(s.problem.Reason, s.problem.Message)
		}},
		{Name: "the cluster is as the pool says", When: func(s *situation) bool { return !s.isDue() }, Then: (*situation).rest},
		{Name: "paused", When: func(s *situation) bool { return s.IsPaused }, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolPausedReason, "An annotation of the ClusterDeployment keeps its MachineSets from being changed")
		}},
		{Name: "the cluster is not to be dialled", When: func(s *situation) bool { return !s.MayDial }, Then: func(*situation) Plan {
			return waitForEvent(hivev1.MachinePoolWaitingReason, "Waits until the cluster runs and answers")
		}},
		{Name: "the next attempt has to wait", When: func(s *situation) bool {
			return s.Attempt.Fingerprint == s.fingerprint && s.Now.Before(s.Attempt.RetryAt)
		}, Then: (*situation).awaitRetry},
		{Name: "look and apply", When: decision.Always[*situation], Then: (*situation).apply},
	}
}

// Decide is pure and total.
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

// recordAnswer writes down what became of the last job.
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

// findProblem looks at what needs no cluster to be seen. Upstream's schema lets numbers through that contradict each other.
func (s *situation) findProblem() *Refusal {
	scaling := s.Spec.Autoscaling
	switch {
	case s.Namesake != "":
		return &Refusal{hivev1.AmbiguousPoolReason, fmt.Sprintf("The MachinePool %s is older and has the same spec.name; delete one of them", s.Namesake)}
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

// isDue reports whether the cluster is to be looked at. That a long time has passed matters only where it may be dialled: a cluster that
// sleeps changes nothing.
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

// readFingerprint changes with what is to be in the cluster, and with each resume: then a failure from before is no reason to wait.
func (s *situation) readFingerprint() string {
	hash := fnv.New64a()
	// A cache lists the other pools in any order.
	_, _ = fmt.Fprintf(hash, "%d %q %q", s.Generation, s.InfraID, slices.Sorted(slices.Values(s.OtherPools)))
	if s.Resume != nil {
		_, _ = fmt.Fprint(hash, s.Resume.Unix())
	}
	return fmt.Sprintf("%x", hash.Sum64())
}

func (s *situation) rest() Plan {
	plan := Plan{Synced: decision.True(hivev1.MachineSetsAsWishedReason, "The MachineSets were as the pool says when they were last looked at")}
	if s.MayDial && !s.IsPaused {
		plan.RequeueAfter = s.nextLook().Sub(s.Now)
	}
	return plan
}

// waitForEvent leaves the cluster alone until something changes.
func waitForEvent(reason, message string) Plan {
	return Plan{Synced: decision.False(reason, message)}
}

func (s *situation) awaitRetry() Plan {
	plan := Plan{RequeueAfter: s.Attempt.RetryAt.Sub(s.Now)}
	if s.Attempt.NoAnswer != "" || s.Attempt.Refusal == nil {
		plan.Synced = decision.False(hivev1.MachinePoolNoAnswerReason, fmt.Sprintf("The cluster did not answer while its MachineSets were looked at (%s)", s.Attempt.NoAnswer))
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
		Synced: decision.False(hivev1.MachineSetsApplyingReason, "The cluster is being looked at"),
	}
}

// judgeConfiguration says what is known of what the pool asks for. Nothing is, while nobody has looked at the cluster since it changed.
func (s *situation) judgeConfiguration(synced decision.Condition) (notEnough, unsupported decision.Condition) {
	notEnough = decision.False(hivev1.EnoughReplicasReason, "There are enough replicas for the MachineSets")
	unsupported = decision.False(hivev1.ConfigurationSupportedReason, "Nothing is known that the cluster or Torpor cannot do")
	refusal := s.problem
	if refusal == nil && s.Attempt.Fingerprint == s.fingerprint && s.isDue() {
		refusal = s.Attempt.Refusal
	}
	switch {
	case refusal == nil && s.Status.ObservedGeneration != s.Generation:
		unknown := decision.Unknown(synced.Reason, "The cluster has not been looked at since the pool changed")
		return unknown, unknown
	case refusal == nil, refusal.Reason == hivev1.MachinePoolRefusedReason:
		return notEnough, unsupported
	case refusal.Reason == hivev1.MinReplicasTooSmallReason:
		return decision.True(refusal.Reason, refusal.Message), unsupported
	default:
		return notEnough, decision.True(refusal.Reason, refusal.Message)
	}
}
