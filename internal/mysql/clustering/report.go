// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// InstanceReport is what is found of one instance.
type InstanceReport struct {
	// Problem says what is wrong with it and what to do; empty if it is well. It is stable while nothing changes.
	Problem string
	// Errant is what it has and may not have, Ahead what it has of the primary's own that the primary lacks, Gap what it
	// lacks and the primary has deleted.
	Errant, Ahead, Gap gtid.Set
	// Discarded is what it has lost, or is about to lose, by being cloned anew.
	Discarded gtid.Set
	// InSync: it receives from the primary, acknowledges and applies.
	InSync bool
	// Lag is negative when unknown.
	Lag time.Duration
	// Staleness is for how long at least what readers of it find is old: the lag, or since when it does not follow.
	Staleness time.Duration
}

func report(d *derivedFacts, plan Plan) Plan {
	plan.State, plan.GuaranteedAcks = d.state, confirmGuaranteedAcks(d)
	if do, promotes := plan.Do.(PromoteInStatus); promotes && do.From == NoInstance {
		plan.GuaranteedAcks = new(0) // Nobody knows who has what the first primary has.
	}
	for _, i := range d.instances {
		r := InstanceReport{Problem: describeProblem(i), Errant: i.Errant, Ahead: i.Ahead, InSync: i.IsInSync, Lag: i.Channel.Lag, Staleness: staleness(i)}
		if isComparable(i) {
			r.Gap = i.MissingPurged
		}
		if r.Discarded = i.Discarded; plan.RecordsDiscard && i.MayBeRecloned {
			r.Discarded = r.Discarded.Union(i.Errant)
		}
		if r.InSync {
			plan.Synced++
		}
		if i.IsErrant {
			plan.Errant = append(plan.Errant, i.Index)
		}
		plan.Instances = append(plan.Instances, r)
	}
	if _, idle := plan.Do.(Nothing); !idle {
		plan.After = immediately
	}
	if plan.Stop != nil {
		plan.StartFindings = findStartRisks(d)
	}
	plan.Initialized, plan.Available, plan.Healthy, plan.ClusteringActive = initialized(d), available(d, plan), healthy(d, plan), clusteringActive(d, plan)
	return plan
}

// staleness is zero for the primary, by which the others are measured.
func staleness(i *instanceFacts) time.Duration {
	longest := max(i.Channel.Lag, 0)
	for _, since := range []time.Time{i.Past.UnreachableSince, i.Past.NotReplicatingSince, i.Past.StalledSince} {
		if !i.IsPrimary && !since.IsZero() {
			longest = max(longest, i.cluster.Now.Sub(since))
		}
	}
	return longest
}

// classify names the state that was observed, whatever is planned.
func (d *derivedFacts) classify() ClusterState {
	inService := isInService(d) && !d.commitsAreStalled
	switch {
	case d.Offline:
		return StateOffline
	case d.Source.isOutstanding():
		return StateCloning
	case d.Restore.isOutstanding():
		return StateRestoring
	case inService && d.count(isWell) == len(d.instances):
		return StateHealthy
	case inService && d.count(acknowledges) >= d.awaitedAcks:
		return StateDegraded
	case d.primaryFailed && hasFailoverQuorum(d):
		return StateFailed
	case d.primaryFailed:
		return StateLost
	default:
		return StateIncomplete
	}
}

// isInService reports whether the primary's clients find it and can use it.
func isInService(d *derivedFacts) bool {
	p := d.primary
	isUsable := p.IsWritable
	if d.staysReadOnly() {
		isUsable = p.SuperReadOnly
	}
	return p.Reachable && p.Pod.Ready && p.Pod.Role == RolePrimary && isUsable && d.primaryIsConfigured
}

// isWell reports whether the Pod of an instance is ready and, unless it is the primary, it follows.
func isWell(i *instanceFacts) bool {
	return i.Pod.Ready && len(i.Weakened) == 0 && (i.IsInSync || i.IsPrimary && describeCopyProblem(i.cluster) == "")
}

// isComparable reports whether an instance should follow the primary and can be compared with it.
func isComparable(i *instanceFacts) bool {
	return !i.IsPrimary && i.cluster.primary.Reachable && i.Reachable && !i.cluster.primaryLostData
}

// describeProblem says what is wrong with an instance: the first that matters.
func describeProblem(i *instanceFacts) string {
	what := describeSymptom(i)
	switch {
	case what == "" && !i.Pod.Ready:
		what = "has a pod that is not ready"
	case what == "":
		return ""
	}
	// The failure stays in the message until the next attempt after the back-off has ended, so that it does not flap.
	if i.Past.Failure != "" && i.cluster.Now.Sub(i.Past.FailedAt) < 2*actionBackoff {
		what += " (" + i.Past.Failure + ")"
	}
	if i.Stopped {
		what += " and is left alone, as asked"
	}
	return fmt.Sprintf("instance %d %s", i.Index, what)
}

func describeSymptom(i *instanceFacts) string {
	switch {
	case !i.Pod.Exists:
		return "has no pod"
	case !i.Reachable:
		return "does not answer"
	case i.Clone == Cloning:
		return "is being cloned"
	case len(i.Weakened) > 0:
		return "may lose commits by its settings of " + strings.Join(i.Weakened, ", ")
	case i.IsPrimary:
		return describePrimarySymptom(i.cluster)
	default:
		return describeReplicaSymptom(i)
	}
}

func describePrimarySymptom(d *derivedFacts) string {
	p := d.primary
	switch {
	case d.primaryLostData:
		return "is the primary and lacks transactions that replicas have"
	case primaryHasBacklog(d) && p.Channel.SQLErrno != 0 && p.Channel.SQL == Stopped:
		return fmt.Sprintf("is the primary and stopped applying its relay log with error %d", p.Channel.SQLErrno)
	case d.staysReadOnly() && describeCopyProblem(d) != "":
		return describeCopyProblem(d)
	case !d.primaryIsConfigured:
		return "is the primary and not configured yet"
	case d.primaryMayHaveLostData && p.SuperReadOnly:
		return "is the primary and empty; it is made writable once every other instance answers and is empty too"
	case p.SuperReadOnly && d.any(canAcknowledgeBesidePrimary):
		return "is the primary, and read-only while another instance can be written to"
	case !p.IsWritable && !d.staysReadOnly():
		return "is the primary and read-only"
	case p.Pod.Role != RolePrimary:
		return "is the primary and has no label yet"
	case d.commitsAreStalled && p.SemiSync.Waiting == 0:
		return "is the primary, and no commit gets through: it cannot write its binary log; its volume may be full"
	case awaitsImpossibleAck(d):
		return "is the primary; its clients wait for replicas that are empty, and a copy waits for its clients: they are about to be cut off"
	case d.commitsAreStalled:
		return "is the primary, and no commit gets through: its clients wait for replicas"
	case d.count(acknowledges) < d.awaitedAcks && !d.staysReadOnly():
		return "is the primary and its clients wait for replicas"
	default:
		return ""
	}
}

func describeReplicaSymptom(i *instanceFacts) string {
	switch c := i.Channel; {
	case i.IsUnexpectedlyWritable:
		return "can be written to and is not the primary"
	case i.IsErrant:
		return "is errant: it has " + abbreviateSet(i.Errant) + " and nobody else; " + adviseReclone(i)
	case !i.Ahead.IsEmpty():
		return "is ahead of the primary by " + abbreviateSet(i.Ahead) + ", so that it will skip what the primary numbers so; " + adviseReclone(i)
	case i.SemiSync.Waiting > 0:
		return "has clients that wait for replicas it no longer has"
	case !isComparable(i):
		return ""
	case i.IsEmptyReplica:
		return "is empty and not cloned yet"
	case !i.MissingPurged.IsEmpty():
		return "needs transactions that the primary has deleted; " + adviseReclone(i)
	case c.SQL == Stopped && c.SQLErrno != 0:
		return fmt.Sprintf("stopped applying with error %d; SHOW REPLICA STATUS in it says more", c.SQLErrno)
	case i.HasWrongSource, i.HasWrongSemiSync:
		return "does not follow the primary yet"
	case c.IO != Running && c.IOErrno != 0:
		return fmt.Sprintf("does not receive from the primary, with error %d; SHOW REPLICA STATUS in it says more", c.IOErrno)
	case c.IO != Running || !i.Acknowledges:
		return "does not receive from the primary"
	case c.SQL == Stopped:
		return "stopped applying"
	case i.IsStalled:
		return "is connected to the primary and receives nothing; its volume may be full"
	case lagsTooFar(i):
		return "is further behind than spec.maxDelaySeconds allows, and clients do not find it"
	default:
		return ""
	}
}

// adviseReclone says how an instance becomes a copy of the primary, or that it will.
func adviseReclone(i *instanceFacts) string {
	if i.Pod.Reclone || i.cluster.ReclonesErrant && i.IsErrant {
		return "it is cloned anew once the primary is in service and has enough other replicas"
	}
	return fmt.Sprintf("have it cloned anew by kubectl moco reclone NAME --index %d", i.Index)
}

// maxShownSet is the length of a set in a message.
const maxShownSet = 200

// abbreviateSet prints a set for people; of a long one only how many transactions it has.
func abbreviateSet(s gtid.Set) string {
	if s.IsEmpty() {
		return "transactions of its own" // They were judged at an earlier look, and the primary does not answer now.
	}
	if text := s.String(); len(text) <= maxShownSet {
		return text
	}
	return fmt.Sprintf("%d transactions", s.Count())
}

func initialized(d *derivedFacts) decision.Condition {
	switch {
	case d.state == StateCloning:
		return decision.False(string(d.state), describeCopy(d))
	case d.state == StateRestoring:
		return decision.False(string(d.state), "The primary is being restored from a backup")
	case !d.hasPrimary() && d.state != StateOffline:
		return decision.False(string(d.state), describeMissingPrimary(d))
	default:
		return decision.True(ReasonInitialized, "The cluster has a primary")
	}
}

func available(d *derivedFacts, plan Plan) decision.Condition {
	p := d.primary
	switch {
	case plan.Stop != nil:
		return unknownWhileStopped(d)
	case d.state == StateHealthy || d.state == StateDegraded:
		return decision.True(string(d.state), fmt.Sprintf("The primary, instance %d, is in service", p.Index))
	// One miss is no failure yet, and a condition that is False would be taken for one by alerts.
	case d.hasPrimary() && !p.Reachable && d.primaryIsHeard && !d.primaryIsDown && d.state == StateIncomplete:
		return decision.Unknown(ReasonPrimaryUnanswered, fmt.Sprintf("The primary, instance %d, does not answer the manager, and its replicas receive from it", p.Index))
	case d.hasPrimary() && !p.Reachable && !d.primaryIsDown && d.state == StateIncomplete:
		return decision.Unknown(ReasonPrimaryUnanswered, fmt.Sprintf("The primary, instance %d, did not answer", p.Index))
	default:
		return decision.False(string(d.state), describeProblems(d))
	}
}

func healthy(d *derivedFacts, plan Plan) decision.Condition {
	switch {
	case plan.Stop != nil:
		return unknownWhileStopped(d)
	case d.state == StateHealthy && len(d.instances) == 1:
		return decision.True(string(d.state), fmt.Sprintf("The primary, instance %d, is in service; it has no replica", d.primary.Index)+describeFollowing(d))
	case d.state == StateHealthy:
		return decision.True(string(d.state), fmt.Sprintf("Every replica follows the primary, instance %d", d.primary.Index)+describeFollowing(d))
	default:
		return decision.False(string(d.state), describeProblems(d))
	}
}

// unknownWhileStopped promises nothing, since the cluster is not looked after while clustering is stopped.
func unknownWhileStopped(d *derivedFacts) decision.Condition {
	return decision.Unknown(ReasonStopped, fmt.Sprintf("Clustering is stopped; what is seen looks %s", d.state))
}

func clusteringActive(d *derivedFacts, plan Plan) decision.Condition {
	switch {
	case plan.StartRefused:
		return decision.False(ReasonStartRefused, "Clustering stays stopped, since a start would do harm: "+joinFindings(listRefusals(d)))
	case plan.Stop != nil && plan.Stop.Unfinished != "":
		return decision.False(ReasonInactive, "Clustering is stopped, and not all could be finished: "+plan.Stop.Unfinished)
	case plan.Stop != nil:
		return decision.False(ReasonInactive, "Clustering is stopped")
	case d.StopAsked:
		return decision.True(ReasonQuiescing, "Clustering is asked to stop and finishes: "+joinFindings(listUnfinished(d)))
	default:
		return decision.True(ReasonActive, "Clustering is active")
	}
}

// describeProblems says everything that is wrong, in the order of the instances.
func describeProblems(d *derivedFacts) string {
	var found []string
	if d.primaryFailed {
		found = append(found, describeFailoverObstacle(d))
	}
	for _, i := range d.instances {
		if problem := describeProblem(i); problem != "" {
			found = append(found, problem)
		}
	}
	if why := describeSwitchoverObstacle(d); why != "" {
		found = append(found, why)
	}
	if len(found) == 0 {
		return fmt.Sprintf("The cluster is %s", d.state)
	}
	return joinFindings(found)
}

func joinFindings(found []string) string { return strings.Join(found, "; ") }
