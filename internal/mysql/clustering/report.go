// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"slices"
	"strings"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// InstanceReport holds the status of one instance.
type InstanceReport struct {
	// Problem describes the instance's most important problem and, in most cases, the user's next step. It is empty if
	// there is no problem. The text is stable while nothing changes.
	Problem string
	// Errant is the set of other servers' transactions that the instance has and the primary lacks. Ahead is the set of
	// the primary's own transactions that the instance has and the primary lacks. Gap is the set of transactions that
	// the instance lacks and the primary has purged.
	Errant, Ahead, Gap gtid.Set
	// Discarded is the set of transactions that re-clones of the instance have discarded or are about to discard.
	Discarded gtid.Set
	// InSync means that the instance receives from the primary, acknowledges and applies.
	InSync bool
	// Lag is the replication lag. It is negative when unknown.
	Lag time.Duration
	// Staleness is the minimum age of the data that readers get: the lag, or the time since the instance last
	// replicated.
	Staleness time.Duration
}

func report(d *derivedFacts, plan Plan) Plan {
	plan.State, plan.GuaranteedAcks = d.state, confirmGuaranteedAcks(d)
	if do, promotes := plan.Do.(PromoteInStatus); promotes && do.From == NoInstance {
		plan.GuaranteedAcks = new(0) // No replica is known to have the transactions of the first primary.
	}
	for _, i := range d.instances {
		r := InstanceReport{
			Problem: describeProblem(i), Errant: i.Errant, Ahead: i.Ahead, InSync: i.IsInSync,
			Lag: i.Channel.Lag, Staleness: staleness(i),
		}
		if isComparable(i) {
			r.Gap = i.MissingPurged
		}
		if r.Discarded = i.Discarded; plan.RecordsDiscard && i.MayBeRecloned {
			r.Discarded = r.Discarded.Union(discardedBy(i))
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
	plan.Initialized, plan.Available, plan.Healthy, plan.ClusteringActive = initialized(d), available(d, plan),
		healthy(d, plan), clusteringActive(d, plan)
	return plan
}

// staleness returns the minimum age of an instance's data. For the primary, only its lag behind an external server
// counts.
func staleness(i *instanceFacts) time.Duration {
	longest := max(i.Channel.Lag, 0)
	for _, since := range []time.Time{i.Past.UnreachableSince, i.Past.NotReplicatingSince, i.Past.StalledSince} {
		if !i.IsPrimary && !since.IsZero() {
			longest = max(longest, i.cluster.Now.Sub(since))
		}
	}
	return longest
}

// classify returns the observed state. It does not depend on the plan.
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

// isInService reports whether clients find the primary by its label and can use it.
func isInService(d *derivedFacts) bool {
	p := d.primary
	isUsable := p.IsWritable
	if d.staysReadOnly() {
		isUsable = p.SuperReadOnly
	}
	return p.Reachable && p.Pod.Ready && p.Pod.Role == RolePrimary && isUsable && d.primaryIsConfigured
}

// isWell reports whether the Pod of an instance is ready and no setting endangers acknowledged transactions. In
// addition, a replica must be in sync, and the primary must not have a problem with an external server.
func isWell(i *instanceFacts) bool {
	return i.Pod.Ready && len(i.Weakened) == 0 && (i.IsInSync || i.IsPrimary && describeCopyProblem(i.cluster) == "")
}

// isComparable reports whether an instance should follow the primary and can be compared with it.
func isComparable(i *instanceFacts) bool {
	return !i.IsPrimary && i.cluster.primary.Reachable && i.Reachable && !i.cluster.primaryLostData
}

// describeProblem describes the most important problem of an instance.
func describeProblem(i *instanceFacts) string {
	what := describeSymptom(i)
	switch {
	case what == "" && !i.Pod.Ready:
		what = "has a pod that is not ready"
	case what == "":
		return ""
	}
	// The failure stays in the message until the next attempt after the back-off, so the message does not flap.
	if i.Past.Failure != "" && i.cluster.Now.Sub(i.Past.FailedAt) < 2*actionBackoff {
		what += " (" + i.Past.Failure + ")"
	}
	if i.Stopped {
		what += ", and clustering is stopped for this instance"
	}
	return fmt.Sprintf("instance %d %s", i.Index, what)
}

func describeSymptom(i *instanceFacts) string {
	switch {
	case !i.Pod.Exists:
		return "has no pod"
	case !i.Reachable && len(i.ExpiredAccounts) > 0:
		return describeExpiredAccounts(i)
	case !i.Reachable:
		return "does not answer"
	case i.Clone == Cloning:
		return "is being cloned"
	case len(i.Weakened) > 0:
		return "may lose commits because of its settings " + strings.Join(i.Weakened, ", ")
	case i.IsPrimary:
		return describePrimarySymptom(i.cluster)
	default:
		return describeReplicaSymptom(i)
	}
}

// describeExpiredAccounts lists the accounts that MySQL refuses and describes how to renew them.
func describeExpiredAccounts(i *instanceFacts) string {
	return fmt.Sprintf("refuses %s, whose password has expired (MySQL error 1862 or 1820); the server renews the accounts at its next start: "+
		"delete the pod of the instance, unless the kubelet restarts the server", strings.Join(i.ExpiredAccounts, ", "))
}

func describePrimarySymptom(d *derivedFacts) string {
	p := d.primary
	switch {
	case d.primaryLostData:
		return "is the primary and lacks transactions that replicas have"
	case len(p.ExpiredAccounts) > 0 && d.state != StateHealthy:
		return "is the primary and " + describeExpiredAccounts(p)
	case primaryHasBacklog(d) && p.Channel.SQLErrno != 0 && p.Channel.SQL == Stopped:
		return fmt.Sprintf("is the primary and stopped applying its relay log with error %d", p.Channel.SQLErrno)
	case d.staysReadOnly() && describeCopyProblem(d) != "":
		return describeCopyProblem(d)
	case !d.primaryIsConfigured:
		return "is the primary and not configured yet"
	case d.primaryMayHaveLostData && p.SuperReadOnly:
		return "is the primary and empty; the primary is made writable once every other instance answers and is also empty"
	case p.SuperReadOnly && d.any(canAcknowledgeBesidePrimary):
		return "is the primary, and stays read-only until no other instance is writable"
	case !p.IsWritable && !d.staysReadOnly():
		return "is the primary and read-only"
	case p.Pod.Role != RolePrimary:
		return "is the primary and has no label yet"
	case d.commitsAreStalled && p.SemiSync.Waiting == 0:
		return "is the primary and completes no commit: it cannot write its binary log; its volume may be full"
	case awaitsImpossibleAck(d):
		return "is the primary; its clients wait for the acknowledgement of empty replicas, which cannot be cloned until the clients' sessions end: the manager is about to end these sessions"
	case d.commitsAreStalled:
		return "is the primary and completes no commit: its clients wait for replicas to acknowledge"
	case d.count(acknowledges) < d.awaitedAcks && !d.staysReadOnly():
		return "is the primary; its clients wait, because too few replicas acknowledge commits"
	default:
		return ""
	}
}

func describeReplicaSymptom(i *instanceFacts) string {
	switch c := i.Channel; {
	case i.IsUnexpectedlyWritable:
		return "is writable and is not the primary"
	case i.IsErrant:
		return "is errant: it has " + abbreviateSet(i.Errant) + ", which the primary does not have; " + adviseReclone(i)
	case !i.Ahead.IsEmpty():
		return "is ahead of the primary by " + abbreviateSet(i.Ahead) + "; the primary will use these GTIDs for other transactions, which this instance will skip; " + adviseReclone(i)
	case i.SemiSync.Waiting > 0:
		return "is not the primary, but has clients that wait for replicas to acknowledge their commits"
	case !isComparable(i):
		return ""
	case i.IsEmptyReplica:
		return "is empty and not cloned yet"
	case !i.MissingPurged.IsEmpty():
		return "needs transactions that the primary has purged; " + adviseReclone(i)
	case c.SQL == Stopped && c.SQLErrno != 0:
		return fmt.Sprintf("stopped applying with error %d; see the output of SHOW REPLICA STATUS", c.SQLErrno)
	case i.HasWrongSource, i.HasWrongSemiSync:
		return "does not follow the primary yet"
	case c.IO != Running && slices.Contains([]int{errExpired, errMustChange}, c.IOErrno):
		return fmt.Sprintf("is refused by the primary with MySQL error %d, because the password of the replication account has expired; the primary's server "+
			"renews the account at its next start: delete the primary's pod", c.IOErrno)
	case c.IO != Running && c.IOErrno != 0:
		return fmt.Sprintf("does not receive from the primary, with error %d; see the output of SHOW REPLICA STATUS", c.IOErrno)
	case c.IO != Running || !i.Acknowledges:
		return "does not receive from the primary"
	case c.SQL == Stopped:
		return "stopped applying"
	case i.IsStalled:
		return "is connected to the primary and receives nothing; its volume may be full"
	case lagsTooFar(i):
		return "lags further behind than spec.maxDelaySeconds allows and is hidden from clients"
	default:
		return ""
	}
}

// MySQL error numbers for an account whose password has expired, at a login and at a statement.
const errExpired, errMustChange = 1862, 1820

// adviseReclone returns how to re-clone an instance, or that its re-clone is already requested.
func adviseReclone(i *instanceFacts) string {
	if isRecloneRequested(i) {
		return "the instance is re-cloned once the primary is in service and has enough other replicas"
	}
	return fmt.Sprintf("re-clone it with kubectl moco reclone NAME --index %d", i.Index)
}

// maxShownSet is the maximum length of a set in a message.
const maxShownSet = 200

// abbreviateSet formats a set for a message. A long set is reduced to the number of its transactions.
func abbreviateSet(s gtid.Set) string {
	if s.IsEmpty() {
		return "transactions of its own" // The instances were compared in an earlier pass, and the primary does not answer now.
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
	case !d.hasPrimary() && d.state == StateOffline:
		return decision.False(string(d.state), "The cluster is offline; its first primary is chosen when every instance runs")
	case !d.hasPrimary():
		return decision.False(string(d.state), describeMissingPrimary(d))
	default:
		return decision.True(mocov1beta2.InitializedReason, "The cluster has a primary")
	}
}

func available(d *derivedFacts, plan Plan) decision.Condition {
	p := d.primary
	switch {
	case plan.Stop != nil:
		return unknownWhileStopped(d)
	case d.state == StateHealthy || d.state == StateDegraded:
		return decision.True(string(d.state), fmt.Sprintf("The primary, instance %d, is in service", p.Index))
	// A single missed response is not a failure, but alerts would treat a False condition as one.
	case d.hasPrimary() && !p.Reachable && d.primaryIsHeard && !d.primaryIsDown && d.state == StateIncomplete:
		return decision.Unknown(mocov1beta2.PrimaryUnansweredReason,
			fmt.Sprintf("The primary, instance %d, does not answer the manager, but its replicas receive from it", p.Index)+whyUnanswered(p))
	case d.hasPrimary() && !p.Reachable && !d.primaryIsDown && d.state == StateIncomplete:
		return decision.Unknown(mocov1beta2.PrimaryUnansweredReason, fmt.Sprintf("The primary, instance %d, did not answer", p.Index)+whyUnanswered(p))
	default:
		return decision.False(string(d.state), describeProblems(d))
	}
}

// whyUnanswered returns the reason why the primary did not respond, or "" if the reason is unknown.
func whyUnanswered(p *instanceFacts) string {
	if len(p.ExpiredAccounts) == 0 {
		return ""
	}
	return "; the instance " + describeExpiredAccounts(p)
}

func healthy(d *derivedFacts, plan Plan) decision.Condition {
	switch {
	case plan.Stop != nil:
		return unknownWhileStopped(d)
	case d.state == StateHealthy && len(d.instances) == 1:
		return decision.True(string(d.state), fmt.Sprintf("The primary, instance %d, is in service; it has no replica",
			d.primary.Index)+describeFollowing(d))
	case d.state == StateHealthy:
		message := fmt.Sprintf("Every replica follows the primary, instance %d", d.primary.Index) + describeFollowing(d)
		if isSwitchoverDelayed(d) && d.switchoverRequested { // A lagging replica does not make the cluster unhealthy.
			message += "; " + describeSwitchoverObstacle(d)
		}
		return decision.True(string(d.state), message)
	default:
		return decision.False(string(d.state), describeProblems(d))
	}
}

// unknownWhileStopped returns an Unknown condition. The cluster is not supervised while clustering is stopped, so
// neither True nor False would be justified.
func unknownWhileStopped(d *derivedFacts) decision.Condition {
	return decision.Unknown(mocov1beta2.ClusteringStoppedReason, fmt.Sprintf("Clustering is stopped; the observed state is %s", d.state))
}

func clusteringActive(d *derivedFacts, plan Plan) decision.Condition {
	switch {
	case plan.StartRefused:
		return decision.False(mocov1beta2.StartRefusedReason,
			"Clustering stays stopped, because a start would do harm: "+joinFindings(listRefusals(d)))
	case plan.Stop != nil && plan.Stop.Unfinished != "":
		return decision.False(mocov1beta2.ClusteringInactiveReason, "Clustering is stopped with unfinished work: "+plan.Stop.Unfinished)
	case plan.Stop != nil:
		return decision.False(mocov1beta2.ClusteringInactiveReason, "Clustering is stopped")
	case d.StopAsked:
		return decision.True(mocov1beta2.QuiescingReason, "Clustering is about to stop; unfinished work: "+joinFindings(listUnfinished(d)))
	default:
		return decision.True(mocov1beta2.ClusteringActiveReason, "Clustering is active")
	}
}

// describeProblems describes the obstacles to a failover, then one problem of each instance by index, and then the
// obstacles to a switchover. If there are no problems, it returns the state of the cluster.
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
