// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// A failover has three steps: fence the replicas, so the old primary gets no further acknowledgement; find a replica
// that has every transaction; record this replica as the primary in the status.
//
// Invariant: R + W > N, where N = n-1 is the number of replicas of a cluster with n instances, W = g is the number of
// replicas known to have each acknowledged commit (status.guaranteedAcknowledgements; n/2, and less after instances
// were added), and R = n-g is the number of replicas that a failover fences. Every set of R replicas therefore contains
// at least one with the commit. The n-1-R = g-1 replicas that are not fenced are too few to acknowledge another commit.
// TestAGrowingClusterLosesNoCommit and TestClusterHealsAndStopsAfterAnyTwoTroubles check this in the model.

// hearsPrimary reports whether a replica has recently received from the primary.
func hearsPrimary(i *instanceFacts) bool {
	c := i.Channel
	return !i.IsPrimary && i.Reachable && !i.HasWrongSource && c.IO == Running && c.HeardAgo >= 0 && c.HeardAgo <= heardTimeout
}

// hasLostPrimary reports whether a replica of the primary is not connected and tries to connect.
func hasLostPrimary(i *instanceFacts) bool {
	return !i.IsPrimary && i.Reachable && !i.HasWrongSource && i.Channel.IO == Connecting
}

// isDown reports whether the primary's server is not running, or neither the manager nor the replicas can reach it. A
// primary that the manager cannot reach but that sends heartbeats to its replicas still serves its clients. It counts
// as down only after Waits.Unseen, if that limit is set.
func isDown(p *instanceFacts) bool {
	d := p.cluster
	unseen := d.Now.Sub(p.Past.UnreachableSince)
	switch {
	case p.Reachable:
		return false
	case d.primaryIsHeard:
		return d.Waits.Unseen > 0 && unseen >= d.Waits.Unseen
	case !p.Past.DownSince.IsZero(): // Fenced replicas do not receive the primary's heartbeats.
		return true
	case !p.Pod.Exists || !p.Pod.Ready || p.Pod.Terminating:
		return true
	// A network device may also refuse a connection, so a replica must confirm the failure.
	case p.Refused && d.any(hasLostPrimary):
		return true
	default:
		return p.Past.Misses >= primaryDownMisses && unseen >= cmp.Or(d.Waits.Silent, primaryDownAfter)
	}
}

// isClusterStarting reports whether all servers have just started: no replica has its semi-sync settings or runs a
// replication thread. Their primary may take longer to start, so the failover waits.
func isClusterStarting(d *derivedFacts) bool {
	p, patience := d.primary, clusterStartTimeout
	if p.Pod.Ready && !p.Refused { // The server was ready before and hangs now, so it is not starting.
		patience = stallTimeout
	}
	if !d.hasPrimary() || p.Reachable || !p.Pod.Exists || p.Pod.Terminating || d.Now.Sub(p.Past.UnreachableSince) >= patience {
		return false
	}
	hasServedBefore := func(i *instanceFacts) bool {
		isActive := i.SemiSync.Replica || i.SemiSync.Source || i.Channel.IO != Stopped || i.Channel.SQL != Stopped
		return !i.IsPrimary && i.Reachable && isActive
	}
	return !d.any(hasServedBefore) && hasFailoverQuorum(d)
}

// hasFailoverQuorum reports whether enough replicas count for a failover (IsQuorumWitness) to cover every acknowledged
// transaction.
func hasFailoverQuorum(d *derivedFacts) bool { return d.witnesses >= d.quorum }

// isFenced reports whether an instance is fenced.
//
// Invariant: a fenced instance acknowledges nothing until a later pass starts its IO thread. The thread is stopped, and
// no pending statement of Torpor can start it. TestClusterHealsAndStopsAfterAnyTwoTroubles checks after every promotion
// that the new primary has every acknowledged transaction.
func isFenced(i *instanceFacts) bool { return i.Channel.IO == Stopped && !i.Pending }

func isFencedWitness(i *instanceFacts) bool { return i.IsQuorumWitness && isFenced(i) }

func isQuorumFenced(d *derivedFacts) bool { return d.count(isFencedWitness) >= d.quorum }

// listUnfenced returns the instances that could still acknowledge and can be fenced.
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

// findFailoverCandidate returns, of the fenced replicas that count for the failover (IsQuorumWitness), one that has
// every transaction of the others. It prefers a replica that can be promoted now, and then one whose SQL thread has no
// error. A replica whose Pod is terminating comes last.
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

// isReadyForPromotion reports whether an instance has applied all transactions of the fenced replicas that count for
// the failover, and may be promoted now.
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

// needsFence reports whether a failover can begin and an instance is not fenced yet. A failover does not begin during a
// stop.
func needsFence(d *derivedFacts) bool {
	return d.primaryFailed && !d.StopAsked && hasFailoverQuorum(d) && len(listUnfenced(d)) > 0
}

// isFencedInVain reports whether an instance is fenced for a failover that cannot continue. The fence is withdrawn,
// because the primary needs its replicas if only the manager cannot reach it.
func isFencedInVain(i *instanceFacts) bool {
	d, p := i.cluster, i.cluster.primary
	cannotGoOn := !hasFailoverQuorum(d) || d.StopAsked && findFailoverTarget(d) == nil
	hopeless := p.Stopped || d.primaryFailed && cannotGoOn
	return d.hasPrimary() && !p.Reachable && hopeless && !i.IsPrimary && i.Reachable && !i.Stopped && !i.IsErrant &&
		!i.HasWrongSource && i.Channel.IO == Stopped && !i.Channel.wasRejectedBySource()
}

// wasRejectedBySource reports whether the IO thread stopped because the source rejected it. After a restart, the thread
// would stop for the same reason. A lost connection is not a rejection: the thread retries, and keeps that error when
// it is stopped.
func (c ReplicationChannel) wasRejectedBySource() bool {
	const firstClientError, lastClientError = 2000, 2999 // From MySQL's CR_MIN_ERROR: client errors, not responses of the source.
	return c.IOErrno != 0 && (c.IOErrno < firstClientError || c.IOErrno > lastClientError)
}

func shouldUnfence(i *instanceFacts) bool { return i.MayActNow && isFencedInVain(i) }

// findIdleFailoverCandidate returns the failover candidate if it has a relay log to apply and its SQL thread is
// stopped.
func findIdleFailoverCandidate(d *derivedFacts) *instanceFacts {
	c := d.failoverCandidate
	if d.primaryFailed && c != nil && isQuorumFenced(d) && !d.StopAsked && c.MayActNow && c.HasUnappliedRelayLog && canStartSQLThread(c) {
		return c
	}
	return nil
}

// canStartSQLThread reports whether the SQL thread is stopped, and not because of an error that would stop it again.
func canStartSQLThread(i *instanceFacts) bool {
	return i.Channel.Present && i.Channel.SQL == Stopped && (i.Channel.SQLErrno == 0 || isPassingError(i.Channel.SQLErrno))
}

// isPassingError reports whether an error of the SQL thread no longer occurs once its cause, such as a full disk, is
// removed. No row has to be changed.
func isPassingError(errno int) bool {
	const (
		cannotWrite, diskFull, errorOnWrite, storageError, outOfMemory, outOfResources = 3, 1021, 1026, 1030, 1037, 1041
		tableFull, lockTimeout, deadlock                                               = 1114, 1205, 1213
	)
	return slices.Contains([]int{
		cannotWrite, diskFull, errorOnWrite, storageError, outOfMemory, outOfResources,
		tableFull, lockTimeout, deadlock,
	}, errno)
}

func fenceReplicas(d *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do:  StopIO{Indexes: listUnfenced(d)},
		Why: fmt.Sprintf("the primary, instance %d, failed; its replicas are fenced", p.Index),
	}
}

func promoteFailoverTarget(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  PromoteInStatus{Index: i.Index, From: d.primary.Index},
		Why: fmt.Sprintf("instance %d has every acknowledged transaction and becomes the primary", i.Index),
		Events: []decision.Event{warningEvent(EventFailOver,
			fmt.Sprintf("The primary, instance %d, failed; instance %d replaces it", d.primary.Index, i.Index))},
	}
}

func waitForFailover(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeFailoverObstacle(d), After: operationInterval}
}

func describeFailoverObstacle(d *derivedFacts) string {
	c := d.failoverCandidate
	switch {
	case !hasFailoverQuorum(d):
		return describeLostQuorum(d)
	case !isQuorumFenced(d):
		return "the failover waits for the replicas to be fenced"
	case c == nil:
		return "no failover: no replica has every transaction that the other replicas have; " +
			"compare their gtid_executed and re-clone the replica that diverged"
	case c.HasUnappliedRelayLog && c.Channel.SQLErrno != 0:
		return fmt.Sprintf("no failover: instance %d has the newest transactions and stopped applying them with error %d; fix the error and start its SQL thread", c.Index, c.Channel.SQLErrno)
	case c.HasUnappliedRelayLog:
		return fmt.Sprintf("the failover waits for instance %d to apply its relay log", c.Index)
	default:
		return fmt.Sprintf("the failover waits for instance %d", c.Index)
	}
}

// confirmGuaranteedAcks returns g, the number of replicas known to have each acknowledged commit after this
// observation. It returns nil if no number is known yet.
//
// Invariant: g never exceeds the actual number. Let A be the number of replicas that commits wait for. g grows to A
// once A replicas have all transactions that the primary had when its commits were first observed to wait for A
// replicas. Every later commit was acknowledged by A replicas. TestAGrowingClusterLosesNoCommit checks this in the
// model.
func confirmGuaranteedAcks(d *derivedFacts) *int {
	p, known, seen := d.primary, d.GuaranteedAcks, d.History.Acks
	// Before includes transactions that were about to be committed. Those that the primary has neither executed nor is
	// committing now are ignored, because no replica will receive them.
	before := seen.Before.Subtract(seen.Before.Subtract(p.Executed.Union(p.Owned)))
	hasAllBefore := func(i *instanceFacts) bool { return !i.IsPrimary && i.Reachable && i.Held.Contains(before) }
	switch {
	case d.staysReadOnly():
		return new(0)
	case !takesCommits(p):
		return known
	case known == nil && d.acksInForce < d.requiredAcks, known != nil && d.acksInForce < *known:
		return new(d.acksInForce)
	case d.acksInForce == seen.InForce && d.count(hasAllBefore) >= seen.InForce:
		return new(seen.InForce)
	default:
		return known
	}
}

// isGuaranteeDue reports whether commits wait for more replicas than are known to have every commit. The next pass
// should run soon, because it may confirm the larger number.
func isGuaranteeDue(d *derivedFacts) bool {
	return takesCommits(d.primary) && !d.staysReadOnly() && (d.GuaranteedAcks == nil || *d.GuaranteedAcks < d.acksInForce)
}

// awaitsFewerThanGuaranteed reports whether the primary's setting was changed so that commits wait for fewer replicas
// than the status guarantees.
//
// Invariant: the status records the smaller number before the setting is restored. Otherwise a manager that is
// restarted in between would miss the commits from before the restoration. TestFewerAcksAreRecordedFirst checks the
// order.
func awaitsFewerThanGuaranteed(d *derivedFacts) bool {
	return takesCommits(d.primary) && !d.staysReadOnly() && d.GuaranteedAcks != nil && d.acksInForce < d.guaranteedAcks
}

// describeLostQuorum reports that there are too few replicas to determine which commits were acknowledged.
func describeLostQuorum(d *derivedFacts) string {
	if d.quorum >= len(d.instances) {
		return "no failover: the primary may be the only instance with the acknowledged commits; " +
			"bring the primary back, or see docs/clustering.md if the primary is lost"
	}
	expected := fmt.Sprintf("no failover: expected %d reachable replicas with data, found %d", d.quorum, d.witnesses)
	if d.any(func(i *instanceFacts) bool { return !i.IsPrimary && i.Reachable && !i.Held.IsEmpty() }) {
		return expected + "; bring back the other replicas or the primary"
	}
	return expected + "; no replica holds any transaction, so bring back the primary"
}

// The following functions choose the first primary. It is chosen once, and every instance must be reachable.

// findFirstPrimary returns the instance that becomes the first primary: the one that already serves clients, or else
// one that has every transaction. It returns nil unless all instances are reachable, because an unreachable instance
// may have more transactions.
func findFirstPrimary(d *derivedFacts) *instanceFacts {
	if d.hasPrimary() || d.count(isReachable) < len(d.instances) {
		return nil
	}
	for _, suits := range []func(*instanceFacts) bool{servesClients, func(i *instanceFacts) bool { return i.IsWritable && hasEverything(i) }} {
		if found := d.findOldestSeries(suits); found != nil {
			if d.count(suits) > 1 {
				return nil // Each of these instances may have acknowledged transactions that the others lack.
			}
			return found
		}
	}
	if d.any(isWritable) {
		return nil
	}
	suits := func(i *instanceFacts) bool { return hasEverything(i) && !i.Stopped }
	if found := d.findOldestSeries(func(i *instanceFacts) bool { return suits(i) && i.Pod.Role == RolePrimary }); found != nil {
		return found
	}
	return d.findOldestSeries(suits)
}

// servesClients reports whether an instance is writable and enough others acknowledge its commits.
func servesClients(i *instanceFacts) bool {
	required := i.cluster.requiredAcks
	return i.IsWritable && (required == 0 || i.SemiSync.Source && i.SemiSync.WaitFor >= required && len(i.Connected) >= required)
}

// isWritableWithoutPrimary reports whether an instance is writable while the cluster has no primary, does not serve
// clients, and lacks transactions that other instances have.
func isWritableWithoutPrimary(i *instanceFacts) bool {
	return !i.cluster.hasPrimary() && i.IsWritable && i.MayActNow && !servesClients(i) && !hasEverything(i)
}

// hasEverything reports whether no other instance has a transaction that this one lacks.
func hasEverything(i *instanceFacts) bool {
	return !i.cluster.any(func(other *instanceFacts) bool {
		more := other.Held.Subtract(i.Held)
		if i.IsWritable {
			// Replicas receive a transaction of this instance before the instance commits it.
			more = more.NotNumberedBy(i.UUID)
		}
		return !more.IsEmpty()
	})
}

// describeMissingPrimary describes why no first primary is chosen.
func describeMissingPrimary(d *derivedFacts) string {
	if absent := d.findFirst(func(i *instanceFacts) bool { return !i.Reachable }); absent != nil {
		return fmt.Sprintf("the first primary is chosen once every instance answers; instance %d does not answer", absent.Index)
	}
	if d.any(isWritable) {
		return "no primary: several instances are writable, or a writable instance lacks transactions; make all but one of them read-only"
	}
	return "no primary: no instance has every transaction that the other instances have; " +
		"compare their gtid_executed and re-clone the instances that diverged"
}

func chooseFirstPrimary(_ *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:     PromoteInStatus{Index: i.Index, From: NoInstance},
		Why:    fmt.Sprintf("instance %d becomes the first primary", i.Index),
		Events: []decision.Event{normalEvent(EventPrimaryChosen, fmt.Sprintf("Instance %d is the first primary", i.Index))},
	}
}

func waitForFirstPrimary(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: describeMissingPrimary(d), After: degradedInterval}
}

// A switchover has three steps: make the primary read-only, wait for a replica that has every transaction, and record
// that replica as the primary. It can be withdrawn before the last step: a primary that is read-only without a
// switchover is made writable.

// isSwitchoverCandidate reports whether a replica is expected to have every transaction soon after the primary becomes
// read-only.
func isSwitchoverCandidate(i *instanceFacts) bool {
	return mayBecomeCandidate(i) && i.MayActNow && i.IsInSync && i.Pod.Ready && i.Channel.Lag >= 0 && i.Channel.Lag <= maxSwitchoverLag
}

// mayBecomeCandidate reports whether a replica can replace the primary, now or after it has caught up.
func mayBecomeCandidate(i *instanceFacts) bool {
	return i.IsReadOnly && !i.IsPrimary && !i.Stopped && !i.IsErrant && !i.HasWrongSource && i.SemiSync.Waiting == 0 &&
		i.Pod.Exists && !i.Pod.Terminating && !i.Pod.Demote
}

func shouldBeginSwitchover(d *derivedFacts) bool {
	return d.switchoverIsActive && d.any(isSwitchoverCandidate) && d.primary.MayActNow && !d.primary.SuperReadOnly && !isSwitchoverDelayed(d)
}

// isSwitchoverDelayed reports whether a switchover has to wait for a lagging replica. A terminating primary does not
// wait, because its Pod stops anyway.
func isSwitchoverDelayed(d *derivedFacts) bool {
	return forbidsDeletion(d) && !d.primary.Pod.Terminating
}

// findSwitchoverTarget returns a replica that has every transaction of the read-only primary.
//
// Invariant: the primary's set is final when it is compared. The primary is read-only, no commit waits in it, and it
// receives nothing. TestClusterHealsAndStopsAfterAnyTwoTroubles checks in the model that the new primary has every
// acknowledged transaction.
func findSwitchoverTarget(d *derivedFacts) *instanceFacts {
	p := d.primary
	if !d.switchoverIsActive || !p.IsReadOnly || p.SemiSync.Waiting > 0 || p.Channel.Present && p.Channel.IO != Stopped {
		return nil
	}
	return d.findOldestSeries(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.Executed.Contains(p.Held) })
}

// awaitsSwitchoverTarget reports whether the primary is read-only for a switchover while a replica is catching up.
func awaitsSwitchoverTarget(d *derivedFacts) bool {
	return d.switchoverIsActive && d.primary.IsReadOnly && d.any(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.IsInSync })
}

// isFullyReadOnly reports whether no account can write to a server. While the statement that sets the variables still
// waits for commits, the server reports only super_read_only.
func isFullyReadOnly(i *instanceFacts) bool { return i.ReadOnly && i.SuperReadOnly }

// primaryStuckInReadOnly reports whether clients keep the primary from becoming read-only.
func primaryStuckInReadOnly(d *derivedFacts) bool {
	p := d.primary
	return d.switchoverIsActive && p.MayAct && p.Pending && p.PendingFor >= killClientsAfter && !isFullyReadOnly(p)
}

// shouldReleaseCommits reports whether commits of the primary wait for replicas that cannot connect or be cloned. For
// example, the commit of a GRANT blocks every login, so no replica can connect. The primary then becomes read-only, the
// client sessions are killed, and the commits stop waiting. The commits are kept, but are not acknowledged to any
// client.
func shouldReleaseCommits(d *derivedFacts) bool {
	p, pendingFor := d.primary, d.primary.PendingFor
	if p.SuperReadOnly { // The server reports super_read_only even while the statement that sets it still waits.
		return d.commitsAwaitNobody && p.MayAct && (!p.Pending || pendingFor >= killClientsAfter)
	}
	return d.commitsAwaitNobody && p.MayAct && (!p.Pending || pendingFor >= stallTimeout) // The pending statement may be the manager's own GRANT.
}

func releaseCommits(_ *derivedFacts, p *instanceFacts) Plan {
	plan := Plan{
		Do:  SetReadOnly{Index: p.Index},
		Why: fmt.Sprintf("the commits of instance %d wait for replicas that cannot connect; the instance is made read-only", p.Index),
	}
	if p.SuperReadOnly {
		plan.Do = KillConnections{Index: p.Index, EndWaits: true}
		plan.Why = fmt.Sprintf("the clients of instance %d wait for replicas that cannot connect; their sessions are ended", p.Index)
		plan.Events = []decision.Event{warningEvent(EventCommitsReleased,
			fmt.Sprintf("No replica could acknowledge the commits of the primary (instance %d); the sessions of the waiting clients are ended", p.Index))}
	}
	return plan
}

// shouldCancelPending reports whether the primary still runs a manager's statement that is no longer needed or takes
// too long.
func shouldCancelPending(d *derivedFacts) bool {
	p := d.primary
	isUnwanted := (d.StopAsked || d.switchoverGaveUp) && !isFullyReadOnly(p)
	return p.MayAct && p.Pending && !d.switchoverIsActive && !d.commitsAwaitNobody && (isUnwanted || p.PendingFor >= killClientsAfter)
}

func hasPendingStatement(d *derivedFacts) bool { return d.primary.Pending }

func beginSwitchover(d *derivedFacts, p *instanceFacts) Plan {
	candidate := d.findOldestSeries(isSwitchoverCandidate)
	return Plan{
		Do:  SetReadOnly{Index: p.Index},
		Why: fmt.Sprintf("instance %d is made read-only, so that instance %d can replace it", p.Index, candidate.Index),
	}
}

func promoteSwitchoverTarget(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  PromoteInStatus{Index: i.Index, From: d.primary.Index},
		Why: fmt.Sprintf("instance %d has every transaction and becomes the primary", i.Index),
		Events: []decision.Event{normalEvent(EventSwitchOver,
			fmt.Sprintf("Instance %d replaces the primary, instance %d", i.Index, d.primary.Index))},
	}
}

// describeSwitchoverObstacle returns why a requested switchover does not begin, or "" if no switchover is requested or
// the primary is already read-only for it.
func describeSwitchoverObstacle(d *derivedFacts) string {
	switch {
	case !d.switchoverRequested || d.primary.SuperReadOnly && !d.staysReadOnly():
		return ""
	case d.switchoverGaveUp:
		return fmt.Sprintf("the switchover from instance %d took too long and is retried later", d.primary.Index)
	case isSwitchoverDelayed(d):
		return fmt.Sprintf("the switchover from instance %d waits until no replica lags by more than %s (spec.maxDelaySecondsForPodDeletion)",
			d.primary.Index, d.MaxDelayForDeletion)
	default:
		return fmt.Sprintf("the switchover from instance %d waits for a replica that is in sync and ready", d.primary.Index)
	}
}

// History is the manager's memory of earlier passes: times, the number of replicas that commits have waited for, and
// actions without effect. After a restart of the manager it is empty, except for StopAskedSince. It contains no
// requests or decisions.
type History struct {
	// StopAskedSince is the time at which the stop request was first observed, and ReadOnlySince the time at which the
	// primary was first observed read-only for a switchover. GaveUpAt is the time at which a switchover last took too
	// long.
	StopAskedSince, ReadOnlySince, GaveUpAt time.Time
	// Acks is the number of replicas that commits wait for, and the primary's transactions when this number was first
	// observed.
	Acks AcksRecord
	// Instances holds the history of each instance by index.
	Instances []InstanceHistory
}

// AcksRecord is the number of replicas that the commits of a primary wait for. It is 0 while the primary accepts no
// commits. The primary is identified by its UUID. Before is the set of transactions that were committed, or about to
// be, when that number was first observed.
type AcksRecord struct {
	InForce int
	UUID    string
	Before  gtid.Set
}

// InstanceHistory holds earlier observations of an instance.
type InstanceHistory struct {
	// UnreachableSince is zero while the instance is reachable. Misses is the number of consecutive passes without a
	// response.
	UnreachableSince time.Time
	Misses           int
	// DownSince is the time since which the instance has been down as the primary.
	DownSince time.Time
	// NotReplicatingSince is the time since which the instance has been a reachable replica without both threads
	// running.
	NotReplicatingSince time.Time
	// Count is the number of transactions that the instance had executed as the primary, or had executed or received as
	// a replica, at the last observation. StalledSince is the time since which that number has not grown although there
	// is something to commit or receive. ConnectingSince is the time since which the instance has tried to connect.
	Count                         int64
	StalledSince, ConnectingSince time.Time
	// FailedAt is the time at which an action on the instance last failed or had no effect. Failure is the reason. It
	// is empty if the action had no effect.
	FailedAt time.Time
	Failure  string
	// ReloadedAt is the time of the last attempt to make the instance reload its certificate.
	ReloadedAt time.Time
	// LastAction is the last action on the instance: its type and fields as text.
	LastAction string
}

// UpdateHistory adds an observation to the history. It runs before Decide.
func UpdateHistory(before History, o Observed) History {
	o.History = before
	d := derive(o)
	p := d.primary
	after := History{
		StopAskedSince: startOfStreak(before.StopAskedSince, o.StopAsked, o.Now),
		ReadOnlySince:  startOfStreak(before.ReadOnlySince, d.switchoverRequested && p.IsReadOnly, o.Now),
		// GaveUpAt stays set after the primary is writable again, so the next attempt does not follow immediately.
		GaveUpAt:  before.GaveUpAt,
		Acks:      before.Acks,
		Instances: make([]InstanceHistory, len(d.instances)),
	}
	if d.acksInForce != before.Acks.InForce || p.UUID != before.Acks.UUID {
		after.Acks = AcksRecord{d.acksInForce, p.UUID, p.Executed.Union(p.Owned)}
	}
	isOverdue := !after.ReadOnlySince.IsZero() && o.Now.Sub(after.ReadOnlySince) >= switchoverTimeout
	if isOverdue || d.switchoverRequested && p.Pending && p.PendingFor >= switchoverTimeout {
		after.GaveUpAt = o.Now
	}
	for _, i := range d.instances {
		past := i.Past
		past.UnreachableSince = startOfStreak(past.UnreachableSince, !i.Reachable, o.Now)
		past.DownSince = startOfStreak(past.DownSince, i.IsPrimary && d.primaryIsDown, o.Now)
		isReplicating := i.Channel.IO == Running && i.Channel.SQL == Running
		past.NotReplicatingSince = startOfStreak(past.NotReplicatingSince, !i.IsPrimary && i.Reachable && !isReplicating, o.Now)
		past = past.withProgress(i, o.Now)
		past.Misses++
		if i.Reachable {
			past.Misses = 0
		}
		after.Instances[i.Index] = past
	}
	return after
}

func (p InstanceHistory) withProgress(i *instanceFacts, now time.Time) InstanceHistory {
	primary, count := i.cluster.primary, i.Held.Count()
	isDue := primary.Reachable && !primary.Executed.Subtract(i.Held).IsEmpty()
	if i.IsPrimary {
		count, isDue = i.Executed.Count(), i.SemiSync.Waiting > 0 || !i.Owned.NumberedBy(i.UUID).IsEmpty()
	}
	p.ConnectingSince = startOfStreak(p.ConnectingSince, i.Reachable && i.Channel.IO == Connecting, now)
	if i.Reachable { // Without a response, StalledSince remains, because a server that hangs often does not respond.
		p.StalledSince, p.Count = startOfStreak(p.StalledSince, isDue && count == p.Count, now), count
	}
	return p
}

// WithResult adds an action to the history; failure is empty if the action succeeded. An action that is repeated on an
// instance had no effect the first time.
func (m History) WithResult(do Action, at time.Time, failure string) History {
	m.Instances = slices.Clone(m.Instances)
	for _, i := range TargetInstances(do) {
		for len(m.Instances) <= i {
			m.Instances = append(m.Instances, InstanceHistory{})
		}
		past, this := &m.Instances[i], fmt.Sprintf("%T%v", do, do)
		switch {
		case failure != "":
			past.FailedAt, past.Failure = at, failure
		case past.LastAction == this: // The action had succeeded, but the same rule matched again.
			past.FailedAt, past.Failure = at, ""
		default:
			past.FailedAt, past.Failure = time.Time{}, ""
		}
		past.LastAction = this
		if _, isReload := do.(ReloadCertificate); isReload {
			past.ReloadedAt = at
		}
	}
	return m
}

// startOfStreak returns the time since which a fact has been true: before if it was already true, now if it has just
// become true, and the zero time if it is false.
func startOfStreak(before time.Time, goesOn bool, now time.Time) time.Time {
	switch {
	case !goesOn:
		return time.Time{}
	case before.IsZero():
		return now
	default:
		return before
	}
}
