// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// endlessTimeout is a wait for replicas that no commit outlives.
const endlessTimeout = 24 * time.Hour

// view is an Observed with what the rules judge of its instances.
type view struct {
	Observed
	// n is the number of instances and p the index of the primary; both are in range, or p is None.
	n, p int
	// held is what an instance executed or received.
	held []gtid.Set
	// foreign is what an instance executed and the primary did not, and the primary did not number: it is errant.
	foreign []gtid.Set
	// servers are the instances, one for each index.
	servers []Instance
}

func newView(o Observed) *view {
	v := &view{Observed: o, n: max(o.Replicas, 0), p: o.Primary}
	v.servers = make([]Instance, v.n)
	copy(v.servers, o.Instances)
	if v.p < 0 || v.p >= v.n {
		v.p = NoInstance
	}
	v.held, v.foreign = make([]gtid.Set, v.n), make([]gtid.Set, v.n)
	for i, s := range v.servers {
		v.held[i] = s.Executed.Union(s.Channel.Retrieved)
	}
	primary := v.at(v.p)
	if !primary.Reachable || v.lostData() {
		return v
	}
	for i, s := range v.servers {
		if i != v.p && s.Reachable {
			v.foreign[i] = s.Executed.Subtract(primary.Executed).NotNumberedBy(primary.UUID)
		}
	}
	return v
}

// at is an instance, or an empty one for None.
func (v *view) at(i int) *Instance {
	if i == NoInstance {
		return &Instance{}
	}
	return &v.servers[i]
}

func (v *view) past(i int) InstanceHistory {
	if i < 0 || i >= len(v.History.Instances) {
		return InstanceHistory{}
	}
	return v.History.Instances[i]
}

// need is how many replicas a commit awaits.
func (v *view) need() int { return v.n / 2 }

// tired: the last act on it did not help, a moment ago.
func (v *view) tired(i int) bool {
	past := v.past(i)
	return !past.FailedAt.IsZero() && v.Now.Sub(past.FailedAt) < actionBackoff
}

// mine: clustering may act on the instance's server, even one in which a statement hangs.
func (v *view) mine(i int) bool {
	return i != NoInstance && v.at(i).Reachable && !v.at(i).Stopped && !v.tired(i)
}

// free: clustering may act on the server now.
func (v *view) free(i int) bool { return v.mine(i) && !v.at(i).Pending }

// closed: nobody writes to it.
func (v *view) closed(i int) bool {
	return v.at(i).Reachable && v.at(i).SuperReadOnly && !v.at(i).Pending
}

// writable: clients can write to it.
func (v *view) writable(i int) bool { return v.at(i).Reachable && !v.at(i).ReadOnly }

// staysReadOnly: the primary is a copy of a source outside and has to stay one.
func (v *view) staysReadOnly() bool { return v.Source.Wanted }

// stray: an instance beside the primary that somebody may write to. One that is being cloned has to be open for
// administrators, and what is written to it is gone afterwards.
func (v *view) stray(i int) bool {
	s := v.at(i)
	beingCloned := s.Clone == Cloning && s.ReadOnly
	return i != v.p && s.Reachable && !s.SuperReadOnly && !beingCloned
}

// rival: a client can still get something acknowledged by another instance than the primary.
func (v *view) rival(i int) bool {
	s := v.at(i).SemiSync
	return v.stray(i) && (!s.Source || len(v.at(i).Connected) >= s.WaitFor)
}

// errant: it has transactions that nobody else may ever see. Without the primary the last judgement counts.
func (v *view) errant(i int) bool {
	if i == v.p {
		return false
	}
	if !v.at(v.p).Reachable || v.lostData() || !v.at(i).Reachable {
		return v.at(i).KnownErrant
	}
	return !v.foreign[i].IsEmpty()
}

// ahead is what a replica executed of the primary's own transactions and the primary did not. While commits await
// replicas that is usual. Otherwise the primary will use these numbers again, and the replica will skip them.
func (v *view) ahead(i int) gtid.Set {
	primary, s := v.at(v.p), v.at(i)
	if i == v.p || !primary.Reachable || !s.Reachable || primary.SemiSync.Waiting > 0 || primary.UUID == "" {
		return gtid.Set{}
	}
	return s.Executed.NumberedBy(primary.UUID).Subtract(primary.Executed)
}

// settledAhead: and it is not only in flight.
func (v *view) settledAhead(i int) bool {
	past := v.past(i)
	return !v.ahead(i).IsEmpty() && !past.AheadSince.IsZero() && v.Now.Sub(past.AheadSince) >= aheadGracePeriod
}

// lostData: the primary answers, is out of service since it started, and lacks what replicas have: all of it, or the
// last of its own transactions.
func (v *view) lostData() bool {
	if v.p == NoInstance || !v.at(v.p).Reachable || !v.at(v.p).SuperReadOnly {
		return false
	}
	empty := v.at(v.p).Executed.IsEmpty()
	for i := range v.n {
		if i != v.p && v.at(i).Reachable && !v.at(i).KnownErrant && (empty && !v.held[i].IsEmpty() || !v.ahead(i).IsEmpty()) {
			return true
		}
	}
	return false
}

// doubtful: the primary is empty, and somebody who may have more does not answer. It may have lost its volume.
func (v *view) doubtful() bool {
	return v.at(v.p).Reachable && v.at(v.p).Executed.IsEmpty() && v.count(func(i int) bool { return !v.at(i).Reachable }) > 0
}

// down: the primary's server does not run, or nobody can reach it.
func (v *view) down(i int) bool {
	s, past := v.at(i), v.past(i)
	if s.Reachable {
		return false
	}
	if !s.Pod.Exists || !s.Pod.Ready || s.Pod.Terminating || s.Refused {
		return true
	}
	return past.Misses >= primaryDownMisses && v.Now.Sub(past.UnreachableSince) >= primaryDownAfter
}

// misdirected: its channel does not lead to the primary.
func (v *view) misdirected(i int) bool {
	c := v.at(i).Channel
	return !c.Present || c.SourceHost != v.at(v.p).Host
}

// misflagged: it does not acknowledge as a replica should, or awaits others.
func (v *view) misflagged(i int) bool { return !v.at(i).SemiSync.Replica || v.at(i).SemiSync.Source }

// unapplied: its relay log holds transactions that it has not executed; another source would drop them.
func (v *view) unapplied(i int) bool {
	return v.at(i).Channel.Present && !v.at(i).Executed.Contains(v.at(i).Channel.Retrieved)
}

// follows: it receives from the primary, or tries to.
func (v *view) follows(i int) bool {
	return i != v.p && v.at(i).Reachable && !v.misdirected(i) && !v.misflagged(i) && v.at(i).Channel.IO != Stopped && !v.errant(i)
}

// acknowledges: the primary's commits can count on it.
func (v *view) acknowledges(i int) bool {
	return v.follows(i) && v.at(i).Channel.IO == Running && v.at(i).SuperReadOnly &&
		slices.Contains(v.at(v.p).Connected, v.at(i).UUID)
}

// inSync: and it applies what it receives.
func (v *view) inSync(i int) bool {
	return v.acknowledges(i) && v.at(i).Channel.SQL == Running && !v.settledAhead(i)
}

// vacant: it holds nothing and the primary does, so that it needs a copy.
func (v *view) vacant(i int) bool {
	s := v.at(i)
	return s.Reachable && v.held[i].IsEmpty() && s.Channel.IO != Running && !v.at(v.p).Executed.IsEmpty()
}

// gap is what the replica lacks and the primary has deleted.
func (v *view) gap(i int) gtid.Set { return v.at(v.p).Purged.Subtract(v.held[i]) }

// first finds the first instance for which something holds.
func (v *view) first(holds func(*view, int) bool) (int, bool) {
	for i := range v.n {
		if holds(v, i) {
			return i, true
		}
	}
	return NoInstance, false
}

// count counts the instances for which something holds.
func (v *view) count(holds func(int) bool) int {
	n := 0
	for i := range v.n {
		if holds(i) {
			n++
		}
	}
	return n
}

// best is the first of those instances for which something holds that are of the oldest family, which all others can follow.
func (v *view) best(holds func(int) bool) (int, bool) {
	found := NoInstance
	for i := range v.n {
		if holds(i) && (found == NoInstance || v.at(i).Series.isOlderThan(v.at(found).Series)) {
			found = i
		}
	}
	return found, found != NoInstance
}

func (f ReleaseSeries) isOlderThan(g ReleaseSeries) bool {
	return f.Major < g.Major || f.Major == g.Major && f.Minor < g.Minor
}

// list joins what was found, for people.
func list(found []string) string { return strings.Join(found, "; ") }
