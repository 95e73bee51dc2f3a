// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// A failover is: fence, so that the old primary gets no acknowledgement any more; then see who has everything; then
// write it down. A commit is acknowledged by the primary and n/2 others, so that more than n/2 others, fenced, know of
// every acknowledged transaction.

// failed: the primary is gone, or came back without its data, and no restart of everything explains it.
func (v *view) failed() bool {
	return v.p != NoInstance && !v.at(v.p).Stopped && (v.down(v.p) || v.lostData()) && !v.starting()
}

// starting: all servers have just started, since none of them has its settings or threads. Its primary may need a moment.
func (v *view) starting() bool {
	if v.p == NoInstance || v.at(v.p).Reachable || !v.at(v.p).Pod.Exists || v.at(v.p).Pod.Terminating || v.Now.Sub(v.past(v.p).UnreachableSince) >= clusterStartTimeout {
		return false
	}
	for i, s := range v.servers {
		active := s.SemiSync.Replica || s.SemiSync.Source || s.Channel.IO != Stopped || s.Channel.SQL != Stopped
		if i != v.p && s.Reachable && active {
			return false
		}
	}
	return v.witnesses() > v.need()
}

// witness: what it holds can be trusted and seen. An empty instance witnesses nothing: it may have had data before.
func (v *view) witness(i int) bool {
	s := v.at(i)
	return i != v.p && s.Reachable && !s.Stopped && !v.errant(i) && !v.held[i].IsEmpty() && s.SemiSync.Waiting == 0 && s.Clone != Cloning
}

func (v *view) witnesses() int { return v.count(v.witness) }

// fenced: it acknowledges nothing, and no statement of ours can change that.
func (v *view) fenced(i int) bool { return v.at(i).Channel.IO == Stopped && !v.at(i).Pending }

// fencedWitness: its word is final.
func (v *view) fencedWitness(i int) bool { return v.witness(i) && v.fenced(i) }

// allFenced: enough of them.
func (v *view) allFenced() bool { return v.count(v.fencedWitness) > v.need() }

// unfenced are the instances that could still acknowledge and can be stopped from it.
func (v *view) unfenced() []int {
	var open []int
	for i := range v.n {
		if i != v.p && v.mine(i) && !v.fenced(i) {
			open = append(open, i)
		}
	}
	return open
}

// agreed is everything that the fenced witnesses hold.
func (v *view) agreed() gtid.Set {
	var all gtid.Set
	for i := range v.n {
		if v.fencedWitness(i) {
			all = all.Union(v.held[i])
		}
	}
	return all
}

// runner is the fenced witness that holds everything the others hold; of several one that has applied it and stays.
func (v *view) runner() (int, bool) {
	all := v.agreed()
	top := func(i int) bool { return v.fencedWitness(i) && v.held[i].Contains(all) }
	for _, better := range []func(int) bool{
		func(i int) bool { return top(i) && v.ready(i, all) && !v.at(i).Pod.Terminating },
		func(i int) bool { return top(i) && v.at(i).Channel.SQLErrno == 0 && !v.at(i).Pod.Terminating },
		top,
	} {
		if i, ok := v.best(better); ok {
			return i, true
		}
	}
	return NoInstance, false
}

// ready: it has applied all of that and may be promoted now.
func (v *view) ready(i int, all gtid.Set) bool {
	return v.free(i) && v.closed(i) && v.at(i).Executed.Contains(all)
}

// electable finds the instance that a failover can promote now.
func (v *view) electable() (int, bool) {
	i, ok := v.runner()
	return i, ok && v.failed() && v.allFenced() && v.ready(i, v.agreed())
}

// needsFence: a failover can begin, and not everybody is fenced. A stop begins none.
func (v *view) needsFence() bool {
	return v.failed() && !v.StopAsked && v.witnesses() > v.need() && len(v.unfenced()) > 0
}

// fencedInVain: it is fenced for a failover that cannot go on. If the primary is only out of our sight, it needs its
// replicas.
func (v *view) fencedInVain(i int) bool {
	_, electable := v.electable()
	hopeless := v.at(v.p).Stopped || v.failed() && (v.witnesses() <= v.need() || v.StopAsked && !electable)
	s := v.at(i)
	return v.p != NoInstance && !v.at(v.p).Reachable && hopeless && i != v.p && s.Reachable && !s.Stopped && !v.errant(i) &&
		!v.misdirected(i) && s.Channel.IO == Stopped && !s.Channel.wasRejectedBySource()
}

// wasRejectedBySource: the source refused, so that the receiving thread ended by itself and a start would end the same way. A lost
// connection is no refusal: the thread tries on, and keeps that error when it is stopped.
func (c ReplicationChannel) wasRejectedBySource() bool {
	const firstLost, lastLost = 2000, 2999 // The errors of MySQL's clients.
	return c.IOErrno != 0 && (c.IOErrno < firstLost || c.IOErrno > lastLost)
}

// releasable: and the fence can be taken back now.
func releasable(v *view, i int) bool { return v.free(i) && v.fencedInVain(i) }

// idleRunner: the top runner has to apply its relay log and does not.
func (v *view) idleRunner() (int, bool) {
	i, ok := v.runner()
	return i, ok && v.failed() && v.allFenced() && !v.StopAsked && v.free(i) && v.unapplied(i) && v.canApply(i)
}

// canApply: its SQL thread is stopped, not by an error.
func (v *view) canApply(i int) bool {
	c := v.at(i).Channel
	return c.Present && c.SQL == Stopped && c.SQLErrno == 0
}

func fence(v *view, _ int) Plan {
	return Plan{Do: StopIO{Indexes: v.unfenced()}, Why: fmt.Sprintf("the primary, instance %d, failed: its replicas are fenced", v.p)}
}

func electRunner(v *view, i int) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i, From: v.p},
		Why:    fmt.Sprintf("instance %d has everything that was acknowledged and becomes the primary", i),
		Events: []Event{{Warning: true, Reason: "FailOver", Note: fmt.Sprintf("The primary, instance %d, failed; instance %d takes its place", v.p, i)}},
	}
}

// waitFailover says why a failover does not go on.
func waitFailover(v *view, _ int) Plan {
	return Plan{Why: v.obstacle(), After: operationInterval}
}

// obstacle says what a failover waits for.
func (v *view) obstacle() string {
	i, found := v.runner()
	switch {
	case v.witnesses() <= v.need():
		return v.lost()
	case !v.allFenced():
		return "the failover waits for the replicas to be fenced"
	case !found:
		return "no failover: of the replicas none has everything that the others have; compare their GTID sets and clone anew the one that is wrong"
	case v.unapplied(i) && v.at(i).Channel.SQLErrno != 0:
		return fmt.Sprintf("no failover: instance %d has the newest transactions and stopped applying them with error %d; mend it and start its SQL thread", i, v.at(i).Channel.SQLErrno)
	case v.unapplied(i):
		return fmt.Sprintf("the failover waits for instance %d to apply its relay log", i)
	default:
		return fmt.Sprintf("the failover waits for instance %d", i)
	}
}

// lost says why too few replicas are left to know what was acknowledged.
func (v *view) lost() string {
	expected := fmt.Sprintf("no failover: expected %d replicas with data that answer, found %d", v.need()+1, v.witnesses())
	for i := range v.n {
		if i != v.p && v.at(i).Reachable && !v.held[i].IsEmpty() {
			return expected + "; bring back the others or the primary"
		}
	}
	return expected + "; no replica holds any transaction, so bring back the primary"
}
