// SPDX-License-Identifier: Apache-2.0

// Package clustering decides what happens to a MySQL cluster: who is its primary, who follows it, and what a stop of
// clustering has to finish first. It is pure: Decide turns what was Observed into a Plan, and the order of its rules is
// the documentation. What is stored: the index of the primary in the status, which every act follows from together with
// the spec and the observation, how many replicas have every commit that a client was told of, and the record of a stop that
// was reached. History is only clocks and what was seen of that number since, and may be lost.
package clustering

import (
	"fmt"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

type rule = decision.Rule[*derivedFacts, Plan]

// rules returns the whole decision in its order: the first that matches wins, and the last always does. A stop finishes
// what stands above the rule "quiescing" and leaves alone what stands below it.
func rules() []rule { return slices.Concat(urgentRules(), repairRules(), upkeepRules()) }

// urgentRules are those of a stop, a failover and a switchover.
func urgentRules() []rule {
	return []rule{
		when("being deleted", isBeingDeleted, wait("the cluster is being deleted", stoppedInterval)),
		when("a start is refused", isStartRefused, refuseStart),
		when("the stop is over", isStopOverdue, endStop),
		when("stopped", isStopped, stayStopped),
		when("started", isStopWithdrawn, startAgain),
		when("stop reached", isStopReached, recordStop),
		when("offline", isOffline, wait("no instance is wanted", healthyInterval)),
		when("restoring", isRestoring, wait("the restore is under way", degradedInterval)),
		forFound("choose the first primary", findFirstPrimary, chooseFirstPrimary),
		forFirst("a pretender", isWritableWithoutPrimary, act("lacks what others have and is made read-only", setReadOnly)),
		when("no primary", lacksPrimary, waitForFirstPrimary),
		when("copied from outside", isCopiedFromOutside, finishCopyFromOutside),
		when("copy from outside", needsCopyFromOutside, copyFromOutside),
		when("copying from outside", isCopyOutstanding, waitForCopyFromOutside),

		forFirst("a second writable instance", isSecondWritable, act("is not the primary and is made read-only", setReadOnly)),
		forFirst("hung clients of a replica", hasHungClients, act("has clients that hang; they are cut off", endClients)),
		forFirst("isolate an errant replica", isErrantAndAcknowledging, act("is errant and is isolated", stopIO)),
		forFirst("hide an errant replica", isErrantAndLabelled, act("is errant and loses its label", removeLabel)),

		when("fence for a failover", needsFence, fenceReplicas),
		forFound("fail over", findFailoverTarget, promoteFailoverTarget),
		forFirst("take a fence back", shouldUnfence, act("was fenced for a failover that cannot go on", startIO)),
		forFound("the top runner does not apply", findIdleFailoverCandidate, act("has to apply its relay log", restartSQL)),
		when("failed", hasFailed, waitForFailover),
		when("the primary does not answer", isPrimarySilent, waitForSecondMiss),

		when("commits await nobody", shouldReleaseCommits, releaseCommits),
		when("cancel a hanging statement", shouldCancelPending, act("runs a statement that is no longer wanted", cancelPending)),
		when("cut off the clients", primaryStuckInReadOnly, act("does not become read-only; its clients are cut off", killConnections)),
		when("a statement runs in the primary", hasPendingStatement, wait("a statement runs in the primary", operationInterval)),
		when("begin a switchover", shouldBeginSwitchover, beginSwitchover),
		when("begin a switchover of a copy", shouldStopCopy, act("is the primary and stops receiving, for another to take its place", stopIO)),
		forFound("switch over", findSwitchoverTarget, promoteSwitchoverTarget),
		when("the heir catches up", awaitsSwitchoverTarget, wait("the primary is read-only until a replica has everything", operationInterval)),
	}
}

// repairRules make a primary and its replicas of the instances.
func repairRules() []rule {
	return []rule{
		when("fewer acknowledgements", awaitsFewerThanGuaranteed, wait("the primary's commits await fewer replicas, which is written down first", operationInterval)),
		forFirst("a second label of the primary", hasStalePrimaryLabel, act("is not the primary and loses its label", removeLabel)),
		when("the primary receives", primaryStillReplicates, act("is the primary and stops receiving", stopIO)),
		when("the primary does not apply", primaryCanApplyBacklog, act("has to apply its relay log", restartSQL)),
		when("the primary applies", primaryHasBacklog, waitForBacklog),
		forFirst("weakened durability", hasWeakenedDurability, act("has settings by which it may lose commits; they are set back", restoreDurability)),
		when("configure the primary", primaryNeedsConfiguration, configurePrimary),
		when("a copy that can be written to", isCopyWritable, act("is a copy of the source outside and is made read-only", setReadOnly)),
		when("follow the source outside", needsSourceOutside, followSourceOutside),
		when("accounts of a copy", needsAccountsOfCopy, takeOverAccounts),
		when("the copy does not receive", isCopyIdle, act("is the primary and stopped receiving from the source outside", startIO)),
		when("make the primary writable", shouldMakeWritable, makePrimaryWritable),
		when("label the primary", primaryNeedsLabel, act("is the primary and gets its label", labelAs(RolePrimary))),
		forFirst("a replica receives from another", replicatesFromWrongSource, act("stops receiving from another than the primary", stopIO)),
		forFirst("a replica does not apply", sqlThreadStopped, act("stopped applying without an error", restartSQL)),
		forFirst("configure a replica", needsReplicaConfiguration, configureReplica),
		forFirst("a replica does not receive", ioThreadStopped, act("stopped receiving", startIO)),

		when("quiescing", isStopAsked, waitForStop),
	}
}

// upkeepRules are for what waits while clustering is stopped.
func upkeepRules() []rule {
	return []rule{
		forFirst("name what a copy will discard", needsDiscardRecord, recordDiscard),
		forFirst("hide one that is cloned anew", isLabelledBeforeReclone, act("is to be cloned anew and loses its label", removeLabel)),
		forFirst("empty one that is cloned anew", mayBeEmptied, discardData),
		forFirst("the request for a copy is done", wasRecloned, act("is empty, as was asked", clearReclone)),
		forFirst("clone a replica", needsClone, cloneReplica),
		forFirst("hide a replica with old data", isLabelledAndStale, act("does not follow, or is too far behind, and loses its label", removeLabel)),
		forFirst("label a replica", needsReplicaLabel, act("follows and gets its label", labelAs(RoleReplica))),
		forFirst("the demotion is done", hasSteppedDown, act("has stepped down", clearDemote)),
		when("accounts of an older list", hasOldAccounts, renewAccounts),
		forFirst("a channel that trusts nobody", knowsNoLongerThePrimary, act("has a certificate of another Secret than the primary; its channel is renewed", renewChannel)),
		forFirst("a channel that trusts anybody", hasUnverifiedChannel, act("follows without knowing the primary's certificate; its channel is renewed", renewChannel)),
		forFirst("an ageing certificate", needsReload, act("shows a certificate that should have been renewed; it looks for a newer one", reloadCertificate)),
		when("new passwords", needsNextPasswords, act("is the primary; new passwords are made", prepareRotation)),
		when("two passwords", needsSecondPasswords, act("gives every account its new password beside the old one", retainPasswords)),
		when("replicas learn passwords", areReplicasBehindRotation, wait("the replicas have yet to learn the passwords", operationInterval)),
		forFirst("a channel with an old password", hasOldChannelPassword, act("logs in with an old password; its channel is renewed", renewChannel)),
		when("passwords in force", mayPromotePasswords, promotePasswords),
		when("old passwords in files", arePasswordsUnknown, wait("files with the old passwords are still there", degradedInterval)),
		when("one password", mayDiscardPasswords, act("forgets the old passwords", discardPasswords)),
		when("rotated", isRotationDone, endRotation),
		when("left over from a stop", hasLeftovers, removeLeftovers),
		when("settled", decision.Always, settle),
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	d := derive(o)
	plan, name := decision.First(rules(), d)
	plan.Rule = name
	if plan.Do == nil {
		plan.Do = Nothing{}
	}
	return report(d, plan)
}

// when makes a rule about the primary, or about the cluster as a whole.
func when(name string, holds func(*derivedFacts) bool, then func(*derivedFacts, *instanceFacts) Plan) rule {
	return rule{Name: name, When: holds, Then: func(d *derivedFacts) Plan { return then(d, d.primary) }}
}

// forFound makes a rule about the instance that find returns; it matches if there is one.
func forFound(name string, find func(*derivedFacts) *instanceFacts, then func(*derivedFacts, *instanceFacts) Plan) rule {
	return rule{
		Name: name,
		When: func(d *derivedFacts) bool { return find(d) != nil },
		Then: func(d *derivedFacts) Plan { return then(d, find(d)) },
	}
}

func forFirst(name string, holds func(*instanceFacts) bool, then func(*derivedFacts, *instanceFacts) Plan) rule {
	return forFound(name, func(d *derivedFacts) *instanceFacts { return d.findFirst(holds) }, then)
}

// act plans an effect on the instance that was found.
func act(why string, do func(int) Action) func(*derivedFacts, *instanceFacts) Plan {
	return func(_ *derivedFacts, i *instanceFacts) Plan {
		return Plan{Do: do(i.Index), Why: fmt.Sprintf("instance %d %s", i.Index, why)}
	}
}

func wait(why string, after time.Duration) func(*derivedFacts, *instanceFacts) Plan {
	return func(*derivedFacts, *instanceFacts) Plan { return Plan{Why: why, After: after} }
}

func setReadOnly(i int) Action     { return SetReadOnly{Index: i} }
func killConnections(i int) Action { return KillConnections{Index: i} }
func endClients(i int) Action      { return KillConnections{Index: i, EndWaits: true} }
func cancelPending(i int) Action   { return CancelPending{Index: i} }
func stopIO(i int) Action          { return StopIO{Indexes: []int{i}} }
func startIO(i int) Action         { return StartIO{Index: i} }
func restartSQL(i int) Action      { return RestartSQL{Index: i} }
func removeLabel(i int) Action     { return SetRole{Index: i, Role: RoleNone} }
func clearDemote(i int) Action     { return ClearDemote{Index: i} }
func clearReclone(i int) Action    { return ClearReclone{Index: i} }

func prepareRotation(int) Action     { return PrepareRotation{} }
func retainPasswords(i int) Action   { return RetainPasswords{Index: i} }
func discardPasswords(i int) Action  { return DiscardPasswords{Index: i} }
func renewChannel(i int) Action      { return RenewChannel{Index: i} }
func reloadCertificate(i int) Action { return ReloadCertificate{Index: i} }
func restoreDurability(i int) Action { return RestoreDurability{Index: i} }

func labelAs(role PodRole) func(int) Action {
	return func(i int) Action { return SetRole{Index: i, Role: role} }
}

func isBeingDeleted(d *derivedFacts) bool  { return d.IsBeingDeleted }
func isStopOverdue(d *derivedFacts) bool   { return d.IsStopOverdue }
func hasLeftovers(d *derivedFacts) bool    { return d.HasLeftovers }
func isOffline(d *derivedFacts) bool       { return d.Offline }
func isRestoring(d *derivedFacts) bool     { return d.Restore.isOutstanding() }
func lacksPrimary(d *derivedFacts) bool    { return !d.hasPrimary() }
func hasFailed(d *derivedFacts) bool       { return d.primaryFailed }
func isPrimarySilent(d *derivedFacts) bool { return !d.primary.Reachable }

func waitForSecondMiss(d *derivedFacts, p *instanceFacts) Plan {
	if d.primaryIsHeard {
		after := min(max(d.Now.Sub(p.Past.UnreachableSince)/2, recheckInterval), degradedInterval)
		return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer, and its replicas receive from it", p.Index), After: after}
	}
	return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer", p.Index), After: suspicionInterval}
}

// settle is the plan when nothing is to be done by clustering.
func settle(d *derivedFacts, _ *instanceFacts) Plan {
	plan := Plan{Why: "nothing is to be done", After: healthyInterval}
	isUnwatched := d.any(func(i *instanceFacts) bool { return i.IsUnwatched })
	if d.state != StateHealthy || d.switchoverRequested || !d.primary.Past.StalledSince.IsZero() || d.any(isHidden) || isUnwatched || isGuaranteeDue(d) {
		plan.After = degradedInterval
	}
	for _, i := range d.instances {
		if isLagging := !i.IsPrimary && d.MaxDelay > 0 && i.Channel.Lag > 0; isLagging { // It is looked at when it may be too far behind.
			plan.After = min(plan.After, max(d.MaxDelay-i.Channel.Lag, degradedInterval))
		}
	}
	return plan
}

// Plan is what Decide returns: at most one effect, and what to report.
type Plan struct {
	// Rule is the name of the rule that matched, Why what it waits for or does, for logs.
	Rule, Why string
	// Do is the effect.
	Do Action
	// State is the cluster's.
	State ClusterState
	// The owned conditions, all of them in every plan.
	Initialized, Available, Healthy, ClusteringActive decision.Condition
	// Instances are the findings by index; Synced counts the replicas that follow, Errant lists those that must not.
	Instances []InstanceReport
	Synced    int
	Errant    []int
	// GuaranteedAcks is how many replicas have every commit that a client was told of; nil before there was a primary that takes any.
	GuaranteedAcks *int
	// RecordsDiscard says that the status is to name what the instances that are cloned anew will lose.
	RecordsDiscard bool
	// Stop replaces the record of the stop; SourceDone is to be written down once the effect has succeeded.
	Stop       *StopRecord
	SourceDone bool
	// StartFindings are what a start would meet while clustering is stopped, and StartRefused says that it was refused.
	StartFindings []Finding
	StartRefused  bool
	// Events are emitted once the effect has succeeded and the status is saved.
	Events []decision.Event
	// After is when to look again, unless something happens before.
	After time.Duration
}

// ClusterState is the cluster's state in one word, as MOCO calls it.
type ClusterState string

// The states.
const (
	StateCloning    ClusterState = "Cloning"
	StateRestoring  ClusterState = "Restoring"
	StateHealthy    ClusterState = "Healthy"
	StateDegraded   ClusterState = "Degraded"
	StateFailed     ClusterState = "Failed"
	StateLost       ClusterState = "Lost"
	StateIncomplete ClusterState = "Incomplete"
	StateOffline    ClusterState = "Offline"
)

// Reasons of conditions beside the names of the states.
const (
	ReasonInitialized       = "Initialized"
	ReasonActive            = "ClusteringActive"
	ReasonInactive          = "ClusteringInactive"
	ReasonStartRefused      = "StartRefused"
	ReasonQuiescing         = "Quiescing"
	ReasonStopped           = "ClusteringStopped"
	ReasonPrimaryUnanswered = "PrimaryUnanswered"
)

// eventAction is what was tried, as events of a plan name it.
const eventAction = "Cluster"

func normalEvent(reason, note string) decision.Event {
	return decision.Event{Reason: reason, Action: eventAction, Note: note}
}

func warningEvent(reason, note string) decision.Event {
	return decision.Event{Warning: true, Reason: reason, Action: eventAction, Note: note}
}

// Action is one effect on the world. The set is closed. Every action may be repeated, returns soon, and is one session in
// one server or one write to the API server; what it waits for is observed by later passes.
//
//sumtype:decl
type Action interface{ targets() []int }

// Nothing leaves the world as it is.
type Nothing struct{}

// PromoteInStatus writes the new primary into the status, if the status still names the old one.
type PromoteInStatus struct{ Index, From int }

// SetReadOnly sets super_read_only and ends the clients' sessions once it holds. The statement may hang behind clients:
// then it stays pending, and the action has returned.
type SetReadOnly struct{ Index int }

// MakeWritable turns semi-synchronous replication on for WaitFor replicas, if any, and then read_only off. One session does
// both, since a server that restarts in between has forgotten the former.
type MakeWritable struct{ Index, WaitFor int }

// KillConnections ends the sessions of clients. With EndWaits, in a server that is read-only or about to be, it then ends their
// waits for acknowledgements too: with the sessions gone, no client takes the end of the wait for an acknowledgement.
type KillConnections struct {
	Index    int
	EndWaits bool
}

// CancelPending ends our own sessions in which a statement still runs.
type CancelPending struct{ Index int }

// StopIO is the fence: it ends our own sessions in which a statement still runs and stops the receiving thread.
type StopIO struct{ Indexes []int }

// StartIO starts the receiving thread.
type StartIO struct{ Index int }

// RestartSQL starts the applying thread.
type RestartSQL struct{ Index int }

// ConfigurePrimary removes the replication channel with RESET REPLICA ALL and makes commits await WaitFor replicas.
type ConfigurePrimary struct{ Index, WaitFor int }

// ConfigureReplica makes an instance follow another: semi-synchronous as a replica and not as a source, both threads
// running. Only another source is changed, since that drops the relay log.
type ConfigureReplica struct{ Index, Source int }

// CloneFrom starts to copy another instance into an empty one; the Donor None is the source outside. It makes sure in its
// own session that nothing was executed or received there.
type CloneFrom struct{ Index, Donor int }

// FinishCopy runs what the user wants to be run in a copy of the source outside, without a trace in its binary log.
type FinishCopy struct{ Index int }

// TakeOverAccounts makes the accounts in a copy of the source outside, and gives those that came from there their own passwords, without
// a trace in its binary log.
type TakeOverAccounts struct{ Index int }

// FollowOutside makes an instance follow the source outside, to which it does not acknowledge. It stays read-only.
type FollowOutside struct{ Index int }

// SetRole labels the pod. Before a label is added, clients' sessions that came under another are ended.
type SetRole struct {
	Index int
	Role  PodRole
}

// ClearDemote removes the request for another primary.
type ClearDemote struct{ Index int }

// ClearReclone removes the request for a copy.
type ClearReclone struct{ Index int }

// DiscardData makes an instance forget its transactions, whatever it has, so that it is as empty as a new one and becomes a copy
// of the primary. Its rows stay until the copy begins, and its binary logs go.
type DiscardData struct{ Index int }

// RestoreDurability sets back what somebody has changed in a running server and acknowledgements depend on.
type RestoreDurability struct{ Index int }

// RenewAccounts makes accounts that are missing and gives the others their rights.
type RenewAccounts struct{ Index int }

// RenewChannel lets a replica take from a source with a certificate of its own Secret alone, unless the source has another Secret, and log
// in with the newest password.
type RenewChannel struct{ Index int }

// ReloadCertificate lets a server take the certificate that is in its files now.
type ReloadCertificate struct{ Index int }

// PrepareRotation writes new passwords beside the old ones into the cluster's Secret.
type PrepareRotation struct{}

// RetainPasswords gives every account its new password and keeps the old one valid.
type RetainPasswords struct{ Index int }

// PromotePasswords puts the new passwords into the place of the old ones in the cluster's Secret.
type PromotePasswords struct{}

// DiscardPasswords ends the old passwords.
type DiscardPasswords struct{ Index int }

// EndRotation removes the wish for a rotation. Discarded says that accounts have one password again.
type EndRotation struct{ Discarded bool }

// EndStop removes the annotations of a stop whose time is over.
type EndStop struct{}

// RemoveLeftovers removes the annotations that say more of a stop than that, after it is over.
type RemoveLeftovers struct{}

// TargetInstances returns the indexes of the instances that an action touches; a write to the cluster's own object touches
// none.
func TargetInstances(do Action) []int { return do.targets() }

func (Nothing) targets() []int             { return nil }
func (PromoteInStatus) targets() []int     { return nil }
func (a SetReadOnly) targets() []int       { return []int{a.Index} }
func (a MakeWritable) targets() []int      { return []int{a.Index} }
func (a KillConnections) targets() []int   { return []int{a.Index} }
func (a CancelPending) targets() []int     { return []int{a.Index} }
func (a StopIO) targets() []int            { return a.Indexes }
func (a StartIO) targets() []int           { return []int{a.Index} }
func (a RestartSQL) targets() []int        { return []int{a.Index} }
func (a ConfigurePrimary) targets() []int  { return []int{a.Index} }
func (a ConfigureReplica) targets() []int  { return []int{a.Index} }
func (a CloneFrom) targets() []int         { return []int{a.Index} }
func (a FinishCopy) targets() []int        { return []int{a.Index} }
func (a FollowOutside) targets() []int     { return []int{a.Index} }
func (a TakeOverAccounts) targets() []int  { return []int{a.Index} }
func (a SetRole) targets() []int           { return []int{a.Index} }
func (a ClearDemote) targets() []int       { return []int{a.Index} }
func (a ClearReclone) targets() []int      { return []int{a.Index} }
func (a DiscardData) targets() []int       { return []int{a.Index} }
func (a RestoreDurability) targets() []int { return []int{a.Index} }
func (a RenewAccounts) targets() []int     { return []int{a.Index} }
func (a RenewChannel) targets() []int      { return []int{a.Index} }
func (a ReloadCertificate) targets() []int { return []int{a.Index} }
func (a RetainPasswords) targets() []int   { return []int{a.Index} }
func (a DiscardPasswords) targets() []int  { return []int{a.Index} }
func (PrepareRotation) targets() []int     { return nil }
func (PromotePasswords) targets() []int    { return nil }
func (EndRotation) targets() []int         { return nil }
func (EndStop) targets() []int             { return nil }
func (RemoveLeftovers) targets() []int     { return nil }
