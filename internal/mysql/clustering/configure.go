// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// The rules in this file turn one instance into the primary and the other instances into its replicas.

// primaryStillReplicates reports whether the primary still receives transactions from another instance, or tries to.
func primaryStillReplicates(d *derivedFacts) bool {
	return d.primary.MayActNow && d.primary.Channel.Present && d.primary.Channel.IO != Stopped && !receivesFromOutside(d)
}

// primaryHasBacklog reports whether the primary has received transactions from another instance that it has not
// applied and must not lose.
func primaryHasBacklog(d *derivedFacts) bool {
	return d.primary.Reachable && d.primary.HasUnappliedRelayLog && !receivesFromOutside(d)
}

func primaryCanApplyBacklog(d *derivedFacts) bool {
	return d.primary.MayActNow && (primaryHasBacklog(d) || receivesFromOutside(d)) && canStartSQLThread(d.primary)
}

func hasWeakenedDurability(i *instanceFacts) bool { return i.MayActNow && len(i.Weakened) > 0 }

// hasOldAccounts reports whether accounts have to be updated, or their expired passwords renewed. An update waits for a
// healthy cluster, because a GRANT that waits for a replica blocks every login. Before each statement, the manager
// checks again that enough replicas are connected.
func hasOldAccounts(d *derivedFacts) bool {
	return d.primary.MayActNow && d.primary.IsWritable && d.primary.HasOldAccounts && !d.StopAsked &&
		(d.state == StateHealthy || canRenewExpiredAccounts(d))
}

// canRenewExpiredAccounts reports whether expired accounts can be renewed while Pods are not ready: the readiness probe
// logs in with one of these accounts.
func canRenewExpiredAccounts(d *derivedFacts) bool {
	return len(d.primary.ExpiredAccounts) > 0 && d.primaryIsConfigured && !d.commitsAreStalled && d.count(acknowledges) >= d.awaitedAcks
}

func renewAccounts(_ *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do:  RenewAccounts{Index: p.Index},
		Why: fmt.Sprintf("the accounts are updated to the current list, in instance %d", p.Index),
	}
}

// hasUnverifiedChannel reports whether a replica would accept a server that impersonates the primary. The channel is
// renewed only in a healthy cluster, because the replica acknowledges nothing during the renewal.
func hasUnverifiedChannel(i *instanceFacts) bool {
	d := i.cluster
	return d.state == StateHealthy && !d.StopAsked && i.MayActNow && i.FollowsPrimary && i.TLSSecret != "" &&
		i.TLSSecret == d.primary.TLSSecret && !i.Channel.IsVerified
}

// knowsNoLongerThePrimary reports whether a replica verifies its source with a CA, but the primary's Pod has a
// certificate from another Secret, so the replica could not reconnect. This happens while the Pods change to another CA
// one by one.
func knowsNoLongerThePrimary(i *instanceFacts) bool {
	p := i.cluster.primary
	return i.MayActNow && i.FollowsPrimary && i.TLSSecret != "" && p.TLSSecret != "" && i.TLSSecret != p.TLSSecret && i.Channel.IsVerified
}

func needsReload(i *instanceFacts) bool {
	return i.MayActNow && i.TLSSecret != "" && i.CertificateIsAging && i.cluster.Now.Sub(i.Past.ReloadedAt) >= reloadInterval
}

func primaryNeedsConfiguration(d *derivedFacts) bool {
	return d.primary.MayActNow && !d.primaryIsConfigured && !d.staysReadOnly()
}

// shouldMakeWritable reports whether the primary is read-only and should be writable.
func shouldMakeWritable(d *derivedFacts) bool {
	p := d.primary
	isOpen := !p.ReadOnly && !p.SuperReadOnly
	if !p.MayActNow || isOpen || !d.primaryIsConfigured || d.staysReadOnly() || d.primaryMayHaveLostData ||
		d.any(canAcknowledgeBesidePrimary) {
		return false
	}
	// Commits wait for acknowledgements, so clients of a primary with too few replicas would hang. The primary stays
	// read-only until enough replicas follow it, or no other replica can. A stop does not wait for the replicas,
	// because it must not leave the primary read-only.
	followers := d.count(func(i *instanceFacts) bool { return i.FollowsPrimary })
	return d.StopAsked || followers >= d.requiredAcks || !d.any(mayStartFollowing) && !d.any(awaitsClone)
}

// canAcknowledgeBesidePrimary reports whether an instance that is not the primary is writable and can still complete a
// client's commit.
func canAcknowledgeBesidePrimary(i *instanceFacts) bool {
	return i.IsUnexpectedlyWritable && (!i.SemiSync.Source || len(i.Connected) >= i.SemiSync.WaitFor)
}

// awaitsClone reports whether an instance is yet to be cloned, or is being cloned. CLONE waits for commits in progress.
// If these commits wait for the replica that is yet to be cloned, there is a deadlock.
func awaitsClone(i *instanceFacts) bool {
	return !i.IsPrimary && i.Reachable && !i.Stopped && (i.IsEmptyReplica || i.Clone == Cloning)
}

// awaitsMissingAcks reports whether commits in the primary wait for more acknowledgements than its replicas can send.
func awaitsMissingAcks(d *derivedFacts) bool {
	p := d.primary
	return p.SemiSync.Waiting > 0 && !d.StopAsked && !p.Stopped && d.count(acknowledges) < p.SemiSync.awaited()
}

// awaitsImpossibleAck reports whether there is a deadlock: the primary's clients wait for replicas that are yet to be
// cloned, and the clones wait for the clients' commits.
func awaitsImpossibleAck(d *derivedFacts) bool { return awaitsMissingAcks(d) && d.any(awaitsClone) }

// isPrimaryLabelled reports whether the primary's Pod has the label that the primary Service selects, or does not
// exist.
func isPrimaryLabelled(d *derivedFacts) bool {
	return d.primary.Pod.Role == RolePrimary || !d.primary.Pod.Exists
}

// primaryNeedsLabel reports whether the primary is in service but its Pod lacks the label that the primary Service
// selects.
func primaryNeedsLabel(d *derivedFacts) bool {
	inService := d.primary.IsWritable || d.staysReadOnly() && d.primary.IsReadOnly
	return d.primary.MayActNow && d.primaryIsConfigured && inService && !isPrimaryLabelled(d)
}

// hasStalePrimaryLabel reports whether an instance that is not the primary has the primary's label.
func hasStalePrimaryLabel(i *instanceFacts) bool {
	return !i.IsPrimary && i.Pod.Exists && i.Pod.Role == RolePrimary && !i.Stopped && !i.InActionBackoff
}

func isErrantAndLabelled(i *instanceFacts) bool {
	return i.IsErrant && i.Pod.Exists && i.Pod.Role != RoleNone && !i.Stopped && !i.InActionBackoff
}

func isErrantAndAcknowledging(i *instanceFacts) bool {
	return i.IsErrant && i.MayAct && i.Channel.IO != Stopped
}

// hasHungClients reports whether client sessions of a replica wait for replicas that it no longer has, or prevent it
// from becoming read-only. These sessions have to be killed first: if only their waits ended, the clients would believe
// that their transactions are safe.
func hasHungClients(i *instanceFacts) bool {
	blocksReadOnly := i.IsUnexpectedlyWritable && i.Pending && i.PendingFor >= killClientsAfter
	return !i.IsPrimary && i.MayAct && (i.SemiSync.Waiting > 0 || blocksReadOnly)
}

func isSecondWritable(i *instanceFacts) bool { return i.IsUnexpectedlyWritable && i.MayActNow }

// mayStartFollowing reports whether an instance does not follow the primary yet, and can do so without a user's help.
func mayStartFollowing(i *instanceFacts) bool {
	return i.MayFollow && !i.FollowsPrimary && !isStuckOnOldSource(i)
}

// isStuckOnOldSource reports whether a replica cannot apply transactions that it received from another source. Only a
// user can fix this.
func isStuckOnOldSource(i *instanceFacts) bool {
	return i.HasWrongSource && i.HasUnappliedRelayLog && i.Channel.SQLErrno != 0
}

func replicatesFromWrongSource(i *instanceFacts) bool {
	return i.MayActNow && i.MayFollow && i.HasWrongSource && i.Channel.IO != Stopped
}

// sqlThreadStopped reports whether the stopped SQL thread of a replica should be started.
func sqlThreadStopped(i *instanceFacts) bool {
	// During a stop, the stopped SQL thread of a replica is started only if the replica has to apply its relay log
	// before it can follow the primary.
	matters := !i.cluster.StopAsked || i.HasWrongSource && i.HasUnappliedRelayLog
	return i.MayActNow && i.MayFollow && canStartSQLThread(i) && matters && !wasJustStoppedByHand(i)
}

// wasJustStoppedByHand reports whether only the SQL thread of a replica was stopped, without an error, a short time ago.
// An administrator does this to change the channel with the next statement. A server that restarts stops both threads.
func wasJustStoppedByHand(i *instanceFacts) bool {
	isByHand := i.Channel.IO == Running && i.Channel.SQL == Stopped && i.Channel.SQLErrno == 0 && !i.HasWrongSource
	return isByHand && !hasLasted(i.Past.NotReplicatingSince, manualStopGrace, i.cluster.Now)
}

// needsReplicaConfiguration reports whether an instance does not follow the primary as a replica should, and can be
// configured without a loss of data.
func needsReplicaConfiguration(i *instanceFacts) bool {
	if i.HasWrongSource {
		return i.MayActNow && i.MayFollow && !i.HasUnappliedRelayLog // A change of the source drops the relay log.
	}
	return i.MayActNow && i.MayFollow && i.HasWrongSemiSync
}

// ioThreadStopped reports whether the stopped IO thread of a replica with the right source should be started.
func ioThreadStopped(i *instanceFacts) bool {
	return i.MayActNow && i.MayFollow && !i.HasWrongSource && !i.HasWrongSemiSync && i.Channel.IO == Stopped && !restsAfterRefusal(i)
}

// restsAfterRefusal reports whether a replica that its source refused repeatedly is still in its back-off. Every start
// of its IO thread makes the source search its binary logs, and logs an error in both servers.
func restsAfterRefusal(i *instanceFacts) bool {
	return i.Channel.wasRejectedBySource() && !i.Past.FailedAt.IsZero() && i.cluster.Now.Sub(i.Past.FailedAt) < refusalBackoff
}

// needsClone reports whether an instance is empty, the primary is not, and no clone is in progress. A donor serves
// one clone at a time.
func needsClone(i *instanceFacts) bool {
	isCloning := func(other *instanceFacts) bool { return other.Clone == Cloning }
	return !i.IsPrimary && i.cluster.primary.Reachable && i.MayActNow && i.IsEmptyReplica && i.IsReadOnly && !i.cluster.any(isCloning)
}

// isRecloneRequested reports whether a re-clone of an instance is requested. The request for all errant replicas does not
// apply to a replica that is ahead: the primary may have acknowledged these transactions, so only the user discards them.
func isRecloneRequested(i *instanceFacts) bool {
	return i.Pod.Reclone || i.cluster.ReclonesErrant && i.IsErrant && i.Ahead.IsEmpty()
}

// mayBeRecloned reports whether a re-clone of an instance is requested, and enough other instances acknowledge commits.
// A clone waits for the commits of the primary's clients.
func mayBeRecloned(i *instanceFacts) bool {
	d, p := i.cluster, i.cluster.primary
	isBusy := d.any(func(other *instanceFacts) bool { return other.Clone == Cloning })
	isSpare := d.count(func(other *instanceFacts) bool { return other != i && other.Acknowledges }) >= d.requiredAcks
	return isRecloneRequested(i) && isComparable(i) && !i.Held.IsEmpty() && i.MayActNow && i.IsReadOnly && i.SemiSync.Waiting == 0 &&
		(p.IsWritable || d.staysReadOnly()) && d.primaryIsConfigured && !d.commitsAreStalled && !isBusy && isSpare
}

// needsDiscardRecord reports whether a re-clone would discard transactions that the status does not list yet. The list
// remains in the status after the re-clone.
func needsDiscardRecord(i *instanceFacts) bool {
	return i.MayBeRecloned && !i.Discarded.Contains(discardedBy(i))
}

// discardedBy returns the transactions that a re-clone of a replica discards: those that the instance executed or
// received, and that the primary neither executed nor is committing.
func discardedBy(i *instanceFacts) gtid.Set {
	d, p := i.cluster, i.cluster.primary
	return d.withoutOutside(i.Held.Subtract(p.Executed).Subtract(p.Owned))
}

func isLabelledBeforeReclone(i *instanceFacts) bool {
	return i.MayBeRecloned && i.Pod.Exists && i.Pod.Role != RoleNone
}

func mayBeEmptied(i *instanceFacts) bool { return i.MayBeRecloned }

// isRecloneRequestDone reports whether a re-clone request can be removed. This is the case for the primary, which is
// never re-cloned, and for an empty instance. An empty replica is then cloned from the primary.
func isRecloneRequestDone(i *instanceFacts) bool {
	return i.Pod.Reclone && i.Pod.Exists && !i.Stopped && !i.InActionBackoff && (i.IsPrimary || i.Reachable && i.Held.IsEmpty())
}

func recordDiscard(_ *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Why:   fmt.Sprintf("instance %d is about to be re-cloned, and the status lists the transactions that the primary does not have", i.Index),
		After: immediately, RecordsDiscard: true,
	}
}

func discardData(d *derivedFacts, i *instanceFacts) Plan {
	plan := Plan{
		Do:  DiscardData{Index: i.Index},
		Why: fmt.Sprintf("instance %d is emptied to become a copy of the primary", i.Index),
	}
	note := fmt.Sprintf("Instance %d is re-cloned from instance %d", i.Index, d.primary.Index)
	all := discardedBy(i)
	if lost := all.NumberedBy(d.primary.UUID); !lost.IsEmpty() {
		note += "; the instance had " + abbreviateSet(lost) + ", which the primary may have acknowledged and lost"
	}
	if others := all.NotNumberedBy(d.primary.UUID); !others.IsEmpty() {
		note += "; the instance had " + abbreviateSet(others) + ", which the primary does not have and no primary has acknowledged to a client"
	}
	if !all.IsEmpty() {
		note += "; status.instances lists these transactions"
	}
	plan.Events = []decision.Event{warningEvent(EventRecloned, note)}
	return plan
}

// needsReplicaLabel reports whether an instance follows the primary closely enough to serve clients, but its Pod lacks
// the label that the replica Service selects.
func needsReplicaLabel(i *instanceFacts) bool {
	return i.MayActNow && i.FollowsPrimary && i.IsReadOnly && i.Pod.Exists && i.Pod.Role != RoleReplica && !lagsTooFar(i) && !hasStaleData(i)
}

// lagsTooFar reports whether a replica lags too far behind to serve clients.
func lagsTooFar(i *instanceFacts) bool {
	limit := i.cluster.MaxDelay
	if i.Pod.Role != RoleReplica {
		limit /= 2 // A replica without a label has to catch up to half the limit, which prevents flapping labels.
	}
	return !i.IsPrimary && i.cluster.MaxDelay > 0 && i.Channel.Lag > limit
}

// hasStaleData reports whether a replica cannot catch up by itself, or has not caught up for too long, so its clients
// read increasingly old data. It returns false after the primary failed, because a failover stops the replicas, and no
// other instance has newer data.
func hasStaleData(i *instanceFacts) bool {
	d, c := i.cluster, i.Channel
	if i.IsPrimary || !i.Reachable || !d.hasPrimary() || d.primaryFailed {
		return false
	}
	hasFailed := c.SQL == Stopped && c.SQLErrno != 0 || c.IO == Stopped && c.wasRejectedBySource() ||
		isComparable(i) && !i.MissingPurged.IsEmpty()
	// A replica keeps retrying a login that its source refuses.
	isStopped := c.IO == Stopped || c.SQL == Stopped || c.IO == Connecting && c.wasRejectedBySource()
	isLate := d.MaxDelay > 0 && (hasNotFollowedFor(i, d.MaxDelay+1) || hasLasted(i.Past.StalledSince, d.MaxDelay+1, d.Now))
	return hasFailed || isLate || isStopped && hasNotFollowedFor(i, stoppedThreadTimeout)
}

// hasNotFollowedFor reports whether a replica has not replicated for a given time. It uses both the history and the
// time since the replica last heard from its source, because the history starts only in the pass that first observes
// the interruption.
func hasNotFollowedFor(i *instanceFacts, long time.Duration) bool {
	return hasLasted(i.Past.NotReplicatingSince, long, i.cluster.Now) || i.Channel.IO != Running && i.Channel.HeardAgo >= long
}

// isLabelledAndStale reports whether clients read old data from a replica. The label is removed even during the
// back-off of an action on the replica's server.
func isLabelledAndStale(i *instanceFacts) bool {
	isResting := i.InActionBackoff && strings.HasPrefix(i.Past.LastAction, fmt.Sprintf("%T", SetRole{}))
	return i.Pod.Exists && i.Pod.Role == RoleReplica && i.Reachable && !i.Stopped && !isResting && (lagsTooFar(i) || hasStaleData(i))
}

// isHidden reports whether a replica has no label, so clients do not reach it until it has caught up.
func isHidden(i *instanceFacts) bool {
	return !i.IsPrimary && i.Pod.Exists && i.Pod.Role == RoleNone && !i.Stopped
}

// hasSteppedDown reports whether an instance has a switchover request and is no longer the primary.
func hasSteppedDown(i *instanceFacts) bool {
	return !i.IsPrimary && i.Pod.Demote && i.Pod.Exists && !i.Stopped && !i.InActionBackoff
}

// forbidsDeletion reports whether a replica lags by more than the limit for deleting the primary's Pod. A lag that
// cannot be measured is ignored.
func forbidsDeletion(d *derivedFacts) bool {
	return d.MaxDelayForDeletion > 0 && d.any(func(i *instanceFacts) bool { return !i.IsPrimary && i.Channel.Lag > d.MaxDelayForDeletion })
}

func needsProtection(d *derivedFacts) bool {
	p := d.primary
	return forbidsDeletion(d) && p.Pod.Exists && !p.Pod.Protected && !p.Stopped && !p.InActionBackoff
}

// hasNeedlessProtection reports whether an instance's Pod has the protecting annotation although it may be deleted.
func hasNeedlessProtection(i *instanceFacts) bool {
	isNeeded := i.IsPrimary && forbidsDeletion(i.cluster)
	return i.Pod.Protected && i.Pod.Exists && !isNeeded && !i.Stopped && !i.InActionBackoff
}

func makePrimaryWritable(d *derivedFacts, p *instanceFacts) Plan {
	plan := Plan{
		Do:     MakeWritable{Index: p.Index, WaitFor: d.requiredAcks},
		Why:    fmt.Sprintf("the primary, instance %d, is made writable", p.Index),
		Events: []decision.Event{normalEvent(EventWritable, fmt.Sprintf("The primary, instance %d, is made writable", p.Index))},
	}
	if d.switchoverRequested && d.switchoverGaveUp { // A switchover that took too long is withdrawn.
		plan.Events = append(plan.Events, warningEvent(EventSwitchOverFailed,
			fmt.Sprintf("No replica caught up with instance %d within %s; this instance stays the primary", p.Index, switchoverTimeout)))
	}
	return plan
}

func configurePrimary(d *derivedFacts, p *instanceFacts) Plan {
	return Plan{
		Do:  ConfigurePrimary{Index: p.Index, WaitFor: d.requiredAcks},
		Why: fmt.Sprintf("instance %d is being configured as the primary", p.Index),
	}
}

func configureReplica(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  ConfigureReplica{Index: i.Index, Source: d.primary.Index},
		Why: fmt.Sprintf("instance %d is being configured to follow the primary (instance %d)", i.Index, d.primary.Index),
	}
}

func waitForBacklog(_ *derivedFacts, p *instanceFacts) Plan {
	if errno := p.Channel.SQLErrno; errno != 0 && p.Channel.SQL == Stopped {
		return Plan{Why: fmt.Sprintf("the primary, instance %d, stopped applying its relay log with error %d", p.Index,
			errno), After: degradedInterval}
	}
	return Plan{Why: fmt.Sprintf("the primary, instance %d, applies its relay log", p.Index), After: operationInterval}
}

func cloneReplica(d *derivedFacts, i *instanceFacts) Plan {
	plan := Plan{
		Do:  CloneFrom{Index: i.Index, Donor: d.primary.Index},
		Why: fmt.Sprintf("instance %d is empty and becomes a copy of the primary", i.Index),
	}
	if i.Clone == CloneFailed {
		plan.Events = []decision.Event{warningEvent(EventCloneFailed,
			fmt.Sprintf("The clone of the primary to instance %d failed and is retried", i.Index))}
	}
	return plan
}
