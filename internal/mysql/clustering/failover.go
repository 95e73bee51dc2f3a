// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// A failover is: fence, so that the old primary gets no acknowledgement any more; then see who has everything; then
// write it down. A commit is acknowledged by the primary and n/2 others, so that more than n/2 others, fenced, know of
// every acknowledged transaction.

// isDown reports whether the server of an instance does not run, or nothing can reach it.
func isDown(i *instanceFacts) bool {
	if i.Reachable {
		return false
	}
	// The kubelet and a refused connection are certain. Silence alone may be a lost packet, so it takes two looks.
	if !i.Pod.Exists || !i.Pod.Ready || i.Pod.Terminating || i.Refused {
		return true
	}
	return i.Past.Misses >= primaryDownMisses && i.cluster.Now.Sub(i.Past.UnreachableSince) >= primaryDownAfter
}

// isClusterStarting reports whether all servers have just started, since none of them has its settings or threads. Their
// primary may need a moment longer.
func isClusterStarting(d *derivedFacts) bool {
	p := d.primary
	if !d.hasPrimary() || p.Reachable || !p.Pod.Exists || p.Pod.Terminating || d.Now.Sub(p.Past.UnreachableSince) >= clusterStartTimeout {
		return false
	}
	hasServedBefore := func(i *instanceFacts) bool {
		isActive := i.SemiSync.Replica || i.SemiSync.Source || i.Channel.IO != Stopped || i.Channel.SQL != Stopped
		return !i.IsPrimary && i.Reachable && isActive
	}
	return !d.any(hasServedBefore) && hasFailoverQuorum(d)
}

// hasFailoverQuorum reports whether enough witnesses are left to know every acknowledged transaction.
func hasFailoverQuorum(d *derivedFacts) bool { return d.witnesses > d.requiredAcks }

// isFenced reports whether an instance acknowledges nothing, and no statement of ours can change that.
func isFenced(i *instanceFacts) bool { return i.Channel.IO == Stopped && !i.Pending }

func isFencedWitness(i *instanceFacts) bool { return i.IsQuorumWitness && isFenced(i) }

func isQuorumFenced(d *derivedFacts) bool { return d.count(isFencedWitness) > d.requiredAcks }

// listUnfenced returns the instances that could still acknowledge and can be stopped from it.
func listUnfenced(d *derivedFacts) []int {
	var unfenced []int
	for _, i := range d.instances {
		if !i.IsPrimary && i.MayAct && !isFenced(i) {
			unfenced = append(unfenced, i.Index)
		}
	}
	return unfenced
}

func unionOfFencedWitnesses(d *derivedFacts) gtid.Set {
	var all gtid.Set
	for _, i := range d.instances {
		if isFencedWitness(i) {
			all = all.Union(i.Held)
		}
	}
	return all
}

// findFailoverCandidate returns the fenced witness that holds everything the others hold; of several one that has applied
// it and whose Pod stays.
func findFailoverCandidate(d *derivedFacts) *instanceFacts {
	holdsAll := func(i *instanceFacts) bool { return isFencedWitness(i) && i.Held.Contains(d.failoverTransactions) }
	for _, suits := range []func(*instanceFacts) bool{
		func(i *instanceFacts) bool { return holdsAll(i) && isReadyForPromotion(i) && !i.Pod.Terminating },
		func(i *instanceFacts) bool { return holdsAll(i) && i.Channel.SQLErrno == 0 && !i.Pod.Terminating },
		holdsAll,
	} {
		if found := d.findOldestSeries(suits); found != nil {
			return found
		}
	}
	return nil
}

// isReadyForPromotion reports whether an instance has applied what the fenced witnesses hold and may be promoted now.
func isReadyForPromotion(i *instanceFacts) bool {
	return i.MayActNow && i.IsReadOnly && i.Executed.Contains(i.cluster.failoverTransactions)
}

// findFailoverTarget returns the instance that a failover can promote now.
func findFailoverTarget(d *derivedFacts) *instanceFacts {
	if candidate := d.failoverCandidate; d.primaryFailed && candidate != nil && isQuorumFenced(d) && isReadyForPromotion(candidate) {
		return candidate
	}
	return nil
}

// needsFence reports whether a failover can begin, and an instance has yet to be fenced. A stop begins none.
func needsFence(d *derivedFacts) bool {
	return d.primaryFailed && !d.StopAsked && hasFailoverQuorum(d) && len(listUnfenced(d)) > 0
}

// isFencedInVain reports whether an instance is fenced for a failover that cannot go on. If the primary is only out of the
// manager's sight, it needs its replicas.
func isFencedInVain(i *instanceFacts) bool {
	d, p := i.cluster, i.cluster.primary
	cannotGoOn := !hasFailoverQuorum(d) || d.StopAsked && findFailoverTarget(d) == nil
	hopeless := p.Stopped || d.primaryFailed && cannotGoOn
	return d.hasPrimary() && !p.Reachable && hopeless && !i.IsPrimary && i.Reachable && !i.Stopped && !i.IsErrant &&
		!i.HasWrongSource && i.Channel.IO == Stopped && !i.Channel.wasRejectedBySource()
}

// wasRejectedBySource reports whether the receiving thread ended by itself because the source refused it, so that a start
// would end the same way. A lost connection is no refusal: the thread tries on, and keeps that error when it is stopped.
func (c ReplicationChannel) wasRejectedBySource() bool {
	const firstClientError, lastClientError = 2000, 2999 // MySQL's CR_MIN_ERROR and its range: no answer of the source.
	return c.IOErrno != 0 && (c.IOErrno < firstClientError || c.IOErrno > lastClientError)
}

func shouldUnfence(i *instanceFacts) bool { return i.MayActNow && isFencedInVain(i) }

// findIdleFailoverCandidate returns the failover candidate if it has to apply its relay log and does not.
func findIdleFailoverCandidate(d *derivedFacts) *instanceFacts {
	c := d.failoverCandidate
	if d.primaryFailed && c != nil && isQuorumFenced(d) && !d.StopAsked && c.MayActNow && c.HasUnappliedRelayLog && canStartSQLThread(c) {
		return c
	}
	return nil
}

// canStartSQLThread reports whether the SQL thread is stopped, and not by an error that would stop it again.
func canStartSQLThread(i *instanceFacts) bool {
	return i.Channel.Present && i.Channel.SQL == Stopped && i.Channel.SQLErrno == 0
}

func fenceReplicas(d *derivedFacts, p *instanceFacts) Plan {
	return Plan{Do: StopIO{Indexes: listUnfenced(d)}, Why: fmt.Sprintf("the primary, instance %d, failed: its replicas are fenced", p.Index)}
}

func promoteFailoverTarget(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  PromoteInStatus{Index: i.Index, From: d.primary.Index},
		Why: fmt.Sprintf("instance %d has everything that was acknowledged and becomes the primary", i.Index),
		Events: []decision.Event{warningEvent(EventFailOver,
			fmt.Sprintf("The primary, instance %d, failed; instance %d takes its place", d.primary.Index, i.Index))},
	}
}

func waitForFailover(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeFailoverObstacle(d), After: operationInterval}
}

// describeFailoverObstacle says what a failover waits for.
func describeFailoverObstacle(d *derivedFacts) string {
	c := d.failoverCandidate
	switch {
	case !hasFailoverQuorum(d):
		return describeLostQuorum(d)
	case !isQuorumFenced(d):
		return "the failover waits for the replicas to be fenced"
	case c == nil:
		return "no failover: of the replicas none has everything that the others have; compare their GTID sets and clone anew the one that is wrong"
	case c.HasUnappliedRelayLog && c.Channel.SQLErrno != 0:
		return fmt.Sprintf("no failover: instance %d has the newest transactions and stopped applying them with error %d; mend it and start its SQL thread", c.Index, c.Channel.SQLErrno)
	case c.HasUnappliedRelayLog:
		return fmt.Sprintf("the failover waits for instance %d to apply its relay log", c.Index)
	default:
		return fmt.Sprintf("the failover waits for instance %d", c.Index)
	}
}

// describeLostQuorum says why too few replicas are left to know what was acknowledged.
func describeLostQuorum(d *derivedFacts) string {
	expected := fmt.Sprintf("no failover: expected %d replicas with data that answer, found %d", d.requiredAcks+1, d.witnesses)
	if d.any(func(i *instanceFacts) bool { return !i.IsPrimary && i.Reachable && !i.Held.IsEmpty() }) {
		return expected + "; bring back the others or the primary"
	}
	return expected + "; no replica holds any transaction, so bring back the primary"
}
