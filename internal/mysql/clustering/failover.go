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

// A failover is: fence, so that the old primary gets no acknowledgement any more; then see who has everything; then
// write it down. A commit that a client was told of is in the primary and in n/2 others at least, so that more than n/2 others, fenced,
// know of each. After instances were added it may be in fewer, and more of the others have to be seen.

// hearsPrimary reports whether a replica receives from the primary.
func hearsPrimary(i *instanceFacts) bool {
	c := i.Channel
	return !i.IsPrimary && i.Reachable && !i.HasWrongSource && c.IO == Running && c.HeardAgo >= 0 && c.HeardAgo <= heardTimeout
}

// hasLostPrimary reports whether a replica was connected to the primary and is not any more.
func hasLostPrimary(i *instanceFacts) bool {
	return !i.IsPrimary && i.Reachable && !i.HasWrongSource && i.Channel.IO == Connecting
}

// isDown reports whether the primary's server does not run, or nothing can reach it. One that does not answer the manager and that
// its replicas hear serves its clients.
func isDown(p *instanceFacts) bool {
	d := p.cluster
	unseen := d.Now.Sub(p.Past.UnreachableSince)
	switch {
	case p.Reachable:
		return false
	case d.primaryIsHeard:
		return d.Waits.Unseen > 0 && unseen >= d.Waits.Unseen
	case !p.Past.DownSince.IsZero(): // The fence keeps its replicas from hearing it.
		return true
	case !p.Pod.Exists || !p.Pod.Ready || p.Pod.Terminating:
		return true
	case p.Refused && d.any(hasLostPrimary): // Something else may refuse the manager's connections.
		return true
	default:
		return p.Past.Misses >= primaryDownMisses && unseen >= cmp.Or(d.Waits.Silent, primaryDownAfter)
	}
}

// isClusterStarting reports whether all servers have just started, since none of them has its settings or threads. Their
// primary may need a moment longer.
func isClusterStarting(d *derivedFacts) bool {
	p, patience := d.primary, clusterStartTimeout
	if p.Pod.Ready && !p.Refused { // It has been up, and hangs.
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

// hasFailoverQuorum reports whether enough witnesses are left to know every acknowledged transaction.
func hasFailoverQuorum(d *derivedFacts) bool { return d.witnesses >= d.quorum }

// isFenced reports whether an instance acknowledges nothing, and no statement of ours can change that.
func isFenced(i *instanceFacts) bool { return i.Channel.IO == Stopped && !i.Pending }

func isFencedWitness(i *instanceFacts) bool { return i.IsQuorumWitness && isFenced(i) }

func isQuorumFenced(d *derivedFacts) bool { return d.count(isFencedWitness) >= d.quorum }

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
	return i.Channel.Present && i.Channel.SQL == Stopped && (i.Channel.SQLErrno == 0 || isPassingError(i.Channel.SQLErrno))
}

// isPassingError reports whether an error is one that ends with its cause, without a change of any row.
func isPassingError(errno int) bool {
	const (
		cannotWrite, diskFull, errorOnWrite, storageError, outOfMemory, outOfResources = 3, 1021, 1026, 1030, 1037, 1041
		tableFull, lockTimeout, deadlock                                               = 1114, 1205, 1213
	)
	return slices.Contains([]int{cannotWrite, diskFull, errorOnWrite, storageError, outOfMemory, outOfResources, tableFull, lockTimeout, deadlock}, errno)
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

// confirmGuaranteedAcks returns how many replicas have every commit that a client was told of, as this look shows it. More than before are
// confirmed once as many have what the primary had when its commits were first seen to await them: what came later, they acknowledged.
func confirmGuaranteedAcks(d *derivedFacts) *int {
	p, known, seen := d.primary, d.GuaranteedAcks, d.History.Acks
	// What was about to be committed then, and never was, is awaited in vain.
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

// isGuaranteeDue reports whether more replicas are awaited than are known to have every commit: a look soon may confirm it.
func isGuaranteeDue(d *derivedFacts) bool {
	return takesCommits(d.primary) && !d.staysReadOnly() && (d.GuaranteedAcks == nil || *d.GuaranteedAcks < d.acksInForce)
}

// awaitsFewerThanGuaranteed reports whether somebody has changed the primary so that its commits await fewer replicas. That is written down
// before it is set back: a manager that ends between would not know of the commits that came meanwhile.
func awaitsFewerThanGuaranteed(d *derivedFacts) bool {
	return takesCommits(d.primary) && !d.staysReadOnly() && d.GuaranteedAcks != nil && d.acksInForce < d.guaranteedAcks
}

// describeLostQuorum says why too few replicas are left to know what was acknowledged.
func describeLostQuorum(d *derivedFacts) string {
	if d.quorum >= len(d.instances) {
		return "no failover: the primary alone may have commits that clients were told of; bring it back, or see docs/clustering.md if it is lost"
	}
	expected := fmt.Sprintf("no failover: expected %d replicas with data that answer, found %d", d.quorum, d.witnesses)
	if d.any(func(i *instanceFacts) bool { return !i.IsPrimary && i.Reachable && !i.Held.IsEmpty() }) {
		return expected + "; bring back the others or the primary"
	}
	return expected + "; no replica holds any transaction, so bring back the primary"
}

// The first primary, and what it starts with.

// findFirstPrimary returns the instance that becomes the first primary: the one that serves already, or else one that has
// everything. The choice is made once, while all instances answer, because one that is absent may hold more.
func findFirstPrimary(d *derivedFacts) *instanceFacts {
	if d.hasPrimary() || d.count(isReachable) < len(d.instances) {
		return nil
	}
	for _, suits := range []func(*instanceFacts) bool{servesClients, func(i *instanceFacts) bool { return i.IsWritable && hasEverything(i) }} {
		if found := d.findOldestSeries(suits); found != nil {
			if d.count(suits) > 1 {
				return nil // Each of them may have acknowledged what the others lack.
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

// servesClients reports whether an instance is written to, and enough others acknowledge that.
func servesClients(i *instanceFacts) bool {
	required := i.cluster.requiredAcks
	return i.IsWritable && (required == 0 || i.SemiSync.Source && i.SemiSync.WaitFor >= required && len(i.Connected) >= required)
}

// isWritableWithoutPrimary reports whether an instance is written to before there is a primary, does not serve, and lacks
// what others have.
func isWritableWithoutPrimary(i *instanceFacts) bool {
	return !i.cluster.hasPrimary() && i.IsWritable && i.MayActNow && !servesClients(i) && !hasEverything(i)
}

// hasEverything reports whether no instance has anything that this one lacks.
func hasEverything(i *instanceFacts) bool {
	return !i.cluster.any(func(other *instanceFacts) bool {
		more := other.Held.Subtract(i.Held)
		if i.IsWritable {
			more = more.NotNumberedBy(i.UUID) // Others receive what it is about to commit.
		}
		return !more.IsEmpty()
	})
}

// describeMissingPrimary says why no first primary is chosen.
func describeMissingPrimary(d *derivedFacts) string {
	if absent := d.findFirst(func(i *instanceFacts) bool { return !i.Reachable }); absent != nil {
		return fmt.Sprintf("the first primary is chosen once every instance answers; instance %d does not", absent.Index)
	}
	if d.any(isWritable) {
		return "no primary: instances can be written to that cannot be it, or several; make all but one of them read-only"
	}
	return "no primary: no instance has everything that the others have; compare their GTID sets and clone anew the ones that are wrong"
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

// A switchover is: make the primary read-only; see a replica with everything; write it down. The way back is always
// open: a primary that is read-only for no switchover is made writable.

// isSwitchoverCandidate reports whether a replica can be expected to have everything a moment after the primary is
// read-only.
func isSwitchoverCandidate(i *instanceFacts) bool {
	return mayBecomeCandidate(i) && i.MayActNow && i.IsInSync && i.Pod.Ready && i.Channel.Lag >= 0 && i.Channel.Lag <= maxSwitchoverLag
}

// mayBecomeCandidate reports whether a replica can take the primary's place, now or after it has caught up.
func mayBecomeCandidate(i *instanceFacts) bool {
	return i.IsReadOnly && !i.IsPrimary && !i.Stopped && !i.IsErrant && !i.HasWrongSource && i.SemiSync.Waiting == 0 &&
		i.Pod.Exists && !i.Pod.Terminating && !i.Pod.Demote
}

func shouldBeginSwitchover(d *derivedFacts) bool {
	return d.switchoverIsActive && d.any(isSwitchoverCandidate) && d.primary.MayActNow && !d.primary.SuperReadOnly
}

// findSwitchoverTarget returns the replica that has everything of a primary that is read-only.
func findSwitchoverTarget(d *derivedFacts) *instanceFacts {
	p := d.primary
	if !d.switchoverIsActive || !p.IsReadOnly || p.SemiSync.Waiting > 0 || p.Channel.Present && p.Channel.IO != Stopped {
		return nil
	}
	return d.findOldestSeries(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.Executed.Contains(p.Held) })
}

// awaitsSwitchoverTarget reports whether the primary is read-only while a replica is catching up.
func awaitsSwitchoverTarget(d *derivedFacts) bool {
	return d.switchoverIsActive && d.primary.IsReadOnly && d.any(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.IsInSync })
}

// isFullyReadOnly reports whether a server is read-only for everybody. While the statement still waits for commits, the
// server reports super_read_only alone.
func isFullyReadOnly(i *instanceFacts) bool { return i.ReadOnly && i.SuperReadOnly }

// primaryStuckInReadOnly reports whether clients keep the primary from becoming read-only.
func primaryStuckInReadOnly(d *derivedFacts) bool {
	p := d.primary
	return d.switchoverIsActive && p.MayAct && p.Pending && p.PendingFor >= killClientsAfter && !isFullyReadOnly(p)
}

// shouldReleaseCommits reports whether commits of the primary wait for replicas that cannot come, because they have to log in and
// the commit of a GRANT holds up every login. The primary becomes read-only, its clients are cut off, and then its commits no longer
// wait: they are kept, and nobody is told that they are safe.
func shouldReleaseCommits(d *derivedFacts) bool {
	p, pendingFor := d.primary, d.primary.PendingFor
	if p.SuperReadOnly { // The server says so already while the statement waits.
		return d.commitsAwaitNobody && p.MayAct && (!p.Pending || pendingFor >= killClientsAfter)
	}
	return d.commitsAwaitNobody && p.MayAct && (!p.Pending || pendingFor >= stallTimeout) // It may be a GRANT of the manager's own.
}

func releaseCommits(_ *derivedFacts, p *instanceFacts) Plan {
	plan := Plan{Do: SetReadOnly{Index: p.Index}, Why: fmt.Sprintf("the commits of instance %d wait for replicas that cannot come; it is made read-only", p.Index)}
	if p.SuperReadOnly {
		plan.Do = KillConnections{Index: p.Index, EndWaits: true}
		plan.Why = fmt.Sprintf("the clients of instance %d wait for replicas that cannot come; they are cut off", p.Index)
		plan.Events = []decision.Event{warningEvent(EventCommitsReleased,
			fmt.Sprintf("No replica could acknowledge what the clients of the primary, instance %d, waited for: they are cut off", p.Index))}
	}
	return plan
}

// shouldCancelPending reports whether a statement still runs in the primary whose effect is not wanted any more.
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
		Why: fmt.Sprintf("instance %d is made read-only, for instance %d to take its place", p.Index, candidate.Index),
	}
}

func promoteSwitchoverTarget(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  PromoteInStatus{Index: i.Index, From: d.primary.Index},
		Why: fmt.Sprintf("instance %d has everything and becomes the primary", i.Index),
		Events: []decision.Event{normalEvent(EventSwitchOver,
			fmt.Sprintf("Instance %d takes the place of the primary, instance %d", i.Index, d.primary.Index))},
	}
}

// describeSwitchoverObstacle says why a switchover that is requested does not begin; it is empty if none is requested.
func describeSwitchoverObstacle(d *derivedFacts) string {
	switch {
	case !d.switchoverRequested || d.primary.SuperReadOnly && !d.staysReadOnly():
		return ""
	case d.switchoverGaveUp:
		return fmt.Sprintf("the switchover from instance %d took too long and is tried again later", d.primary.Index)
	default:
		return fmt.Sprintf("the switchover from instance %d waits for a replica that is in sync and ready", d.primary.Index)
	}
}

// History is what the manager remembers of its earlier looks: clocks, since when commits await their replicas, and actions that did not
// help. A manager that restarts starts them anew; nothing that is wanted or was agreed on is kept here.
type History struct {
	// StopAskedSince is when the wish to stop was first seen, ReadOnlySince when the primary was first seen read-only for
	// a switchover, and GaveUpAt when a switchover last took too long.
	StopAskedSince, ReadOnlySince, GaveUpAt time.Time
	// Acks is how many replicas commits await, and since when.
	Acks AcksRecord
	// Instances are by index.
	Instances []InstanceHistory
}

// AcksRecord is how many replicas the commits of a primary await, which is known by its UUID; 0 while it takes none. Before is what it had
// committed, or was about to, when that was first seen.
type AcksRecord struct {
	InForce int
	UUID    string
	Before  gtid.Set
}

// InstanceHistory is what is remembered of an instance.
type InstanceHistory struct {
	// UnreachableSince is zero while it answers; Misses counts the looks since.
	UnreachableSince time.Time
	Misses           int
	// DownSince is since when it counts as down as the primary.
	DownSince time.Time
	// NotReplicatingSince is when it was first seen without both threads running.
	NotReplicatingSince time.Time
	// Count is how many transactions it had committed, or held as a replica, at the last look that showed it. StalledSince is since
	// when that has not grown although there is something, and ConnectingSince since when it tries to connect.
	Count                         int64
	StalledSince, ConnectingSince time.Time
	// FailedAt is when an act on it last failed or did not help, and Failure why.
	FailedAt time.Time
	Failure  string
	// ReloadedAt is when it last looked for a newer certificate.
	ReloadedAt time.Time
	// LastAction is the last act on it.
	LastAction string
}

// UpdateHistory adds a look to the history, before Decide.
func UpdateHistory(before History, o Observed) History {
	o.History = before
	d := derive(o)
	p := d.primary
	after := History{
		StopAskedSince: startOfStreak(before.StopAskedSince, o.StopAsked, o.Now),
		ReadOnlySince:  startOfStreak(before.ReadOnlySince, d.switchoverRequested && p.IsReadOnly, o.Now),
		// It stays after the primary is writable again, so that the next attempt does not follow at once.
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
	if i.Reachable { // Otherwise nobody knows; one that hangs often does not answer either.
		p.StalledSince, p.Count = startOfStreak(p.StalledSince, isDue && count == p.Count, now), count
	}
	return p
}

// WithResult adds an action to the history; failure is empty if it succeeded. The same action twice on an instance did not
// help.
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
		case past.LastAction == this: // It succeeded before, and yet the rule that asked for it matched again.
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

// startOfStreak keeps the beginning of something that goes on.
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
