// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"slices"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// derivedFacts is an Observed with the facts derived from it. They are computed once, before the rules read them.
type derivedFacts struct {
	Observed
	// instances contains the instances of the cluster by index.
	instances []*instanceFacts
	// primary is one of the instances. If there is no primary, it has the index NoInstance and otherwise zero values.
	primary *instanceFacts
	// requiredAcks is the number of replicas that a commit has to wait for, and awaitedAcks the number that it may wait
	// for now. awaitedAcks is lower while instances are added to a primary in service. Otherwise the primary's clients
	// would wait for the new replicas, and the clones of these replicas for the clients.
	requiredAcks, awaitedAcks int
	// acksInForce is the number of replicas that the primary's commits wait for at present: at most requiredAcks, and 0
	// while the primary accepts no commits or they may stop waiting. guaranteedAcks is the number of replicas that have
	// every acknowledged commit according to the status, at most requiredAcks.
	acksInForce, guaranteedAcks int
	// quorum is the number of replicas counting for a failover (IsQuorumWitness) that the failover has to fence.
	// Together they have every acknowledged commit. See failover.go for the invariant.
	quorum int

	// primaryLostData means that the primary is reachable and read-only, and lacks transactions that replicas have. It
	// lacks either all transactions, or the last ones that it committed itself.
	primaryLostData bool
	// primaryMayHaveLostData means that the primary is empty, and an unreachable instance may have more transactions.
	primaryMayHaveLostData bool
	// primaryIsConfigured means that the primary follows no source, and that its commits wait for awaitedAcks replicas.
	// A copy of an external server must follow that server instead.
	primaryIsConfigured bool
	// primaryIsHeard means that enough replicas receive from the primary to acknowledge its commits.
	primaryIsHeard bool
	// primaryIsDown means that the primary's server is not running, or is unreachable for the manager and for replicas.
	// A primary that only the manager cannot reach is down after Waits.Unseen, if that limit is set.
	primaryIsDown bool
	// commitsAreStalled means that commits wait in the primary, and that it has completed none for too long.
	// commitsAwaitNobody means that this cannot end without an action: the commits wait for replicas that keep failing
	// to connect, or that are yet to be cloned.
	commitsAreStalled, commitsAwaitNobody bool
	// primaryFailed means that the primary is down or lost data, and that a restart of all servers does not explain
	// this. It is false while clustering is stopped for the primary.
	primaryFailed bool
	// witnesses is the number of replicas that count for a failover (IsQuorumWitness).
	witnesses int
	// failoverTransactions is the union of the Held sets of the fenced replicas that count for the failover.
	// failoverCandidate is one of these replicas that has all these transactions, or nil. Both are computed only after
	// the primary failed.
	failoverTransactions gtid.Set
	failoverCandidate    *instanceFacts

	// switchoverRequested means that another primary is requested, or that the primary's Pod is terminating. It is
	// false for a single instance and during a stop.
	switchoverRequested bool
	// switchoverGaveUp means that a recent switchover took too long.
	switchoverGaveUp bool
	// switchoverIsActive means that a switchover may begin or continue.
	switchoverIsActive bool

	state ClusterState
}

type instanceFacts struct {
	Instance
	// Index is the ordinal of the instance's Pod.
	Index   int
	cluster *derivedFacts
	// Past is the instance's history.
	Past InstanceHistory

	IsPrimary bool
	// InActionBackoff means that the last action on the instance failed or had no effect, and that actionBackoff has
	// not elapsed.
	InActionBackoff bool
	// MayAct means that actions on the instance's server are allowed, even while a statement of a manager runs in it.
	// MayActNow also means that no such statement runs.
	MayAct, MayActNow bool
	// IsWritable means that clients can write to the instance, or that it is still becoming read-only. IsReadOnly means
	// that no account can write. Both are false while only administrators can write.
	IsWritable, IsReadOnly bool
	// IsUnexpectedlyWritable means that clients or administrators can write to the instance, although it is neither the
	// primary nor being cloned.
	IsUnexpectedlyWritable bool

	// IsStalled means that the instance committed or received nothing for longer than stallTimeout, although
	// transactions were waiting.
	IsStalled bool
	// Held is the set of transactions that the instance executed or received.
	Held gtid.Set
	// HasUnappliedRelayLog means that the relay log contains transactions that the instance has not executed. A change
	// of the source would drop them.
	HasUnappliedRelayLog bool
	// Errant is the set of transactions that the instance executed and the primary did not, except those with the
	// primary's own GTIDs and those of an external server.
	Errant gtid.Set
	// IsErrant means that the instance has transactions that must not reach any other instance. While it cannot be
	// compared with the primary, the result of the last comparison applies.
	IsErrant bool
	// Ahead is the set of the primary's own transactions that the instance executed or received, and that the primary
	// neither executed nor is committing now. The primary will use these GTIDs for other transactions, which the
	// instance will skip.
	Ahead gtid.Set
	// MissingPurged is the set of transactions that the instance lacks and the primary has purged.
	MissingPurged gtid.Set
	// MayBeRecloned means that a re-clone is requested, and that the primary's commits get enough acknowledgements
	// during the re-clone.
	MayBeRecloned bool
	// IsEmptyReplica means that the instance has no transaction and receives none, but the primary has some, so the
	// instance needs a clone.
	IsEmptyReplica bool

	// HasWrongSource means that the instance has no channel, or one that does not replicate from the primary.
	HasWrongSource bool
	// HasWrongSemiSync means that the instance does not acknowledge as a replica should, or that its own commits wait
	// for replicas.
	HasWrongSemiSync bool
	// MayFollow means that the instance can follow the primary without losing anything.
	MayFollow bool
	// FollowsPrimary means that the instance is configured as a replica of the primary and receives from it, or tries
	// to.
	FollowsPrimary bool
	// Acknowledges means that the primary's commits can rely on the instance's acknowledgements.
	Acknowledges bool
	// IsInSync means that the instance acknowledges transactions, applies those that it receives, and is neither ahead
	// nor stalled.
	IsInSync bool
	// IsQuorumWitness means that the instance is a quorum witness: a replica whose transactions are known and reliable,
	// so that it counts for a failover.
	IsQuorumWitness bool
}

// derive computes the facts. Each step reads only facts of earlier steps.
func derive(o Observed) *derivedFacts {
	d := &derivedFacts{Observed: o}
	n := max(o.Replicas, 0)
	d.requiredAcks = n / 2
	if d.guaranteedAcks = d.requiredAcks; d.GuaranteedAcks != nil && !d.staysReadOnly() { // The external server still has the transactions that a copy loses.
		d.guaranteedAcks = min(d.requiredAcks, *d.GuaranteedAcks)
	}
	d.quorum = n - d.guaranteedAcks
	observed := make([]Instance, n)
	copy(observed, o.Instances)
	d.primary = &instanceFacts{Index: NoInstance, cluster: d}
	for index := range observed {
		i := d.newInstance(index, observed[index])
		d.instances = append(d.instances, i)
		if i.IsPrimary {
			d.primary = i
		}
	}
	d.compareWithPrimary()
	for _, i := range d.instances {
		d.deriveReplication(i)
	}
	d.derivePrimary()
	for _, i := range d.instances {
		i.MayBeRecloned = mayBeRecloned(i)
	}
	d.deriveSwitchover()
	d.state = d.classify()
	return d
}

func (d *derivedFacts) newInstance(index int, observed Instance) *instanceFacts {
	i := &instanceFacts{Instance: observed, Index: index, cluster: d, IsPrimary: index == d.Primary}
	if index < len(d.History.Instances) {
		i.Past = d.History.Instances[index]
	}
	i.InActionBackoff = !i.Past.FailedAt.IsZero() && d.Now.Sub(i.Past.FailedAt) < actionBackoff
	i.MayAct = i.Reachable && !i.Stopped && !i.InActionBackoff
	i.MayActNow = i.MayAct && !i.Pending
	i.IsWritable = i.Reachable && !i.ReadOnly
	i.IsReadOnly = i.Reachable && i.SuperReadOnly && !i.Pending
	// CLONE needs a server to which administrators can write, and discards their writes.
	isBeingCloned := i.Clone == Cloning && i.ReadOnly
	i.IsUnexpectedlyWritable = !i.IsPrimary && i.Reachable && !i.SuperReadOnly && !isBeingCloned
	i.IsStalled = i.Reachable && hasLasted(i.Past.StalledSince, stallTimeout, d.Now)
	i.Held = i.Executed.Union(i.Channel.Retrieved)
	i.HasUnappliedRelayLog = i.Channel.Present && !i.Executed.Contains(i.Channel.Retrieved)
	return i
}

func (d *derivedFacts) compareWithPrimary() {
	p := d.primary
	d.primaryMayHaveLostData = p.Reachable && p.Executed.IsEmpty() && d.any(func(i *instanceFacts) bool { return !i.Reachable })
	for _, i := range d.instances {
		if !i.IsPrimary && p.Reachable && i.Reachable && p.UUID != "" {
			i.Ahead = i.Held.NumberedBy(p.UUID).Subtract(p.Executed).Subtract(p.Owned)
		}
	}
	d.primaryLostData = p.Reachable && p.SuperReadOnly && d.any(func(i *instanceFacts) bool {
		hasMore := p.Executed.IsEmpty() && !i.Held.IsEmpty() || !i.Ahead.IsEmpty()
		return !i.IsPrimary && i.Reachable && !i.KnownErrant && hasMore
	})
	for _, i := range d.instances {
		switch {
		case i.IsPrimary:
		case !p.Reachable || d.primaryLostData || !i.Reachable:
			i.IsErrant = i.KnownErrant
		default:
			i.Errant = d.withoutOutside(i.Executed.Subtract(p.Executed).NotNumberedBy(p.UUID))
			i.IsErrant = !i.Errant.IsEmpty()
		}
	}
}

func (d *derivedFacts) deriveReplication(i *instanceFacts) {
	p, c := d.primary, i.Channel
	i.MissingPurged = p.Purged.Subtract(i.Held)
	i.IsEmptyReplica = i.Reachable && i.Held.IsEmpty() && c.IO != Running && !p.Executed.IsEmpty()
	i.HasWrongSource = !c.Present || c.SourceHost != p.Host || c.SourcePort != p.Port
	isSilent := c.IO == Running && !i.SemiSync.ReplicaActive && slices.Contains(p.Connected, i.UUID)
	i.HasWrongSemiSync = !i.SemiSync.Replica || i.SemiSync.Source || isSilent
	if d.staysReadOnly() { // No commit waits for the replica's acknowledgement.
		i.HasWrongSemiSync = i.SemiSync.Source
	}
	i.MayFollow = !i.IsPrimary && p.Reachable && i.Reachable && !i.Stopped && i.SuperReadOnly && !i.IsErrant &&
		i.SemiSync.Waiting == 0 && i.Clone != Cloning && !i.IsEmptyReplica && i.MissingPurged.IsEmpty()
	i.FollowsPrimary = !i.IsPrimary && i.Reachable && !i.HasWrongSource && !i.HasWrongSemiSync && c.IO != Stopped && !i.IsErrant
	i.Acknowledges = i.FollowsPrimary && c.IO == Running && i.SuperReadOnly && slices.Contains(p.Connected, i.UUID)
	i.IsInSync = i.Acknowledges && c.SQL == Running && i.Ahead.IsEmpty() && !i.IsStalled
	// An empty replica does not count for a failover, because it may have lost data that it acknowledged.
	i.IsQuorumWitness = !i.IsPrimary && i.Reachable && !i.Stopped && !i.IsErrant && !i.Held.IsEmpty() &&
		i.SemiSync.Waiting == 0 && i.Clone != Cloning
}

func (d *derivedFacts) derivePrimary() {
	p := d.primary
	d.awaitedAcks = d.requiredAcks
	if p.IsWritable && d.count(canAcknowledgeSoon) < d.requiredAcks {
		d.awaitedAcks = min(d.requiredAcks, p.SemiSync.awaited())
	}
	awaitsReplicas := p.SemiSync.Source && p.SemiSync.WaitFor == d.awaitedAcks && p.SemiSync.Timeout >= endlessTimeout
	if takesCommits(p) && p.SemiSync.Timeout >= endlessTimeout && !p.SemiSync.HasGivenUp {
		d.acksInForce = min(d.requiredAcks, p.SemiSync.awaited())
	}
	d.primaryIsConfigured = !p.Channel.Present && (d.awaitedAcks == 0 || awaitsReplicas)
	if d.staysReadOnly() {
		d.primaryIsConfigured = receivesFromOutside(d) && (p.Channel.IsOutside || d.SourceProblem != "") &&
			!p.SemiSync.Source && !p.SemiSync.Replica
	}
	d.commitsAreStalled = p.IsStalled
	d.commitsAwaitNobody = p.IsStalled && (awaitsImpossibleAck(d) || awaitsMissingAcks(d) && d.count(triesInVain) >= d.requiredAcks)
	d.primaryIsHeard = d.count(hearsPrimary) >= max(1, d.requiredAcks)
	d.primaryIsDown = isDown(p)
	d.witnesses = d.count(func(i *instanceFacts) bool { return i.IsQuorumWitness })
	d.primaryFailed = d.hasPrimary() && !p.Stopped && (d.primaryIsDown || d.primaryLostData) && !isClusterStarting(d)
	if d.primaryFailed {
		d.failoverTransactions = unionOfFencedWitnesses(d)
		d.failoverCandidate = findFailoverCandidate(d)
	}
}

func (d *derivedFacts) deriveSwitchover() {
	p := d.primary
	d.switchoverRequested = len(d.instances) > 1 && (p.Pod.Demote || p.Pod.Terminating) && !p.Stopped && !d.StopAsked
	d.switchoverGaveUp = !d.History.GaveUpAt.IsZero() && d.Now.Sub(d.History.GaveUpAt) < switchoverRetryAfter
	d.switchoverIsActive = d.switchoverRequested && p.Reachable && !d.switchoverGaveUp
}

func (d *derivedFacts) hasPrimary() bool { return d.primary.Index != NoInstance }

// staysReadOnly reports whether the primary is, or is yet to become, a copy of an external server, and has to stay
// read-only.
func (d *derivedFacts) staysReadOnly() bool { return d.Source.Wanted }

// findFirst returns the first instance for which holds returns true, or nil.
func (d *derivedFacts) findFirst(holds func(*instanceFacts) bool) *instanceFacts {
	for _, i := range d.instances {
		if holds(i) {
			return i
		}
	}
	return nil
}

func (d *derivedFacts) any(holds func(*instanceFacts) bool) bool { return d.findFirst(holds) != nil }

func (d *derivedFacts) count(holds func(*instanceFacts) bool) int {
	n := 0
	for _, i := range d.instances {
		if holds(i) {
			n++
		}
	}
	return n
}

// findOldestSeries returns the first instance of the oldest release series among those for which holds returns true.
// Instances of newer series can replicate from it.
func (d *derivedFacts) findOldestSeries(holds func(*instanceFacts) bool) *instanceFacts {
	var found *instanceFacts
	for _, i := range d.instances {
		if holds(i) && (found == nil || i.Series.isOlderThan(found.Series)) {
			found = i
		}
	}
	return found
}

// triesInVain reports whether a replica has tried to connect to its source for too long.
func triesInVain(i *instanceFacts) bool {
	return i.FollowsPrimary && i.Channel.IO == Connecting && hasLasted(i.Past.ConnectingSince, connectTimeout, i.cluster.Now)
}

// hasLasted reports whether a state that began at since has lasted for at least the duration long.
func hasLasted(since time.Time, long time.Duration, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= long
}

func isReachable(i *instanceFacts) bool { return i.Reachable }

func isWritable(i *instanceFacts) bool { return i.IsWritable }

// takesCommits reports whether clients can commit to an instance. They cannot while it is becoming read-only.
func takesCommits(i *instanceFacts) bool { return i.IsWritable && !i.SuperReadOnly }

func acknowledges(i *instanceFacts) bool { return i.Acknowledges }

// canAcknowledgeSoon reports whether a replica acknowledges, and lacks so few transactions that commits do not wait
// long for it to receive them.
func canAcknowledgeSoon(i *instanceFacts) bool {
	return i.Acknowledges && i.cluster.primary.Executed.Subtract(i.Held).Count() <= maxUnreceived
}
