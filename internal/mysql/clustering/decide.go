// SPDX-License-Identifier: Apache-2.0

// Package clustering decides which instance of a MySQL cluster is the primary, which instances replicate from it, and
// which operations are finished before clustering stops. The package is pure: Decide turns an Observed into the Plan of
// the first rule that matches.
//
// The status stores the index of the primary, the number of replicas that have every acknowledged commit, the record of
// a stop that was reached, errant replicas, discarded transactions, and completed copies and restores. Every action
// follows from these values, the spec, the annotations, the observation and the History. The History contains only
// times, earlier observations and failed actions, and may be lost.
package clustering

import (
	"fmt"
	"slices"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
)

type rule = decision.Rule[*derivedFacts, Plan]

// rules returns all rules in order. The first rule that matches applies, and the last rule always matches. After a stop
// is requested, the operations of the rules before "quiescing" are finished, and those of the rules after it do not
// begin.
func rules() []rule { return slices.Concat(urgentRules(), repairRules(), upkeepRules()) }

// urgentRules handle stops, the initialization of the primary, failovers and switchovers.
func urgentRules() []rule {
	return []rule{
		when("being deleted", isBeingDeleted, wait("the cluster is being deleted", stoppedInterval)),
		when("a start is refused", isStartRefused, refuseStart),
		when("the stop's end time has passed", isStopOverdue, endStop),
		when("stopped", isStopped, stayStopped),
		when("started", isStopWithdrawn, startAgain),
		when("clustering has stopped", isStopReached, recordStop),
		when("offline", isOffline, wait("the cluster is offline", healthyInterval)),
		when("restoring", isRestoring, wait("the restore is under way", degradedInterval)),
		forFound("choose the first primary", findFirstPrimary, chooseFirstPrimary),
		forFirst("writable instance without a primary", isWritableWithoutPrimary,
			act("lacks transactions that other instances have and is made read-only", setReadOnly)),
		when("no primary", lacksPrimary, waitForFirstPrimary),
		when("copied from the external server", isCopiedFromOutside, finishCopyFromOutside),
		when("copy from the external server", needsCopyFromOutside, copyFromOutside),
		when("copying from the external server", isCopyOutstanding, waitForCopyFromOutside),

		forFirst("a second writable instance", isSecondWritable,
			act("is not the primary and is made read-only", setReadOnly)),
		forFirst("hung clients of a replica", hasHungClients,
			act("has clients that hang; their sessions are ended", endClients)),
		forFirst("isolate an errant replica", isErrantAndAcknowledging, act("is errant and is isolated", stopIO)),
		forFirst("hide an errant replica", isErrantAndLabelled, act("is errant and loses its label", removeLabel)),

		when("fence for a failover", needsFence, fenceReplicas),
		forFound("fail over", findFailoverTarget, promoteFailoverTarget),
		forFirst("withdraw the fence", shouldUnfence,
			act("was fenced for a failover that cannot continue; its IO thread is started", startIO)),
		forFound("failover candidate has its SQL thread stopped", findIdleFailoverCandidate,
			act("is the failover candidate and has to apply its relay log; its stopped SQL thread is started", restartSQL)),
		when("primary has failed", hasFailed, waitForFailover),
		when("the primary does not answer", isPrimarySilent, waitForSecondMiss),

		when("commits wait for replicas that cannot connect", shouldReleaseCommits, releaseCommits),
		when("cancel a hanging statement", shouldCancelPending,
			act("runs a manager's statement that is no longer needed; the statement is cancelled", cancelPending)),
		when("end the clients' sessions", primaryStuckInReadOnly,
			act("does not become read-only; its clients' sessions are ended", killConnections)),
		when("a statement runs in the primary", hasPendingStatement, wait("a statement runs in the primary", operationInterval)),
		when("begin a switchover", shouldBeginSwitchover, beginSwitchover),
		when("begin a switchover of a copy", shouldStopCopy,
			act("is the primary and stops receiving from the external server, so that a replica can replace it", stopIO)),
		forFound("switch over", findSwitchoverTarget, promoteSwitchoverTarget),
		when("the switchover target is catching up", awaitsSwitchoverTarget,
			wait("the switchover waits until a replica has all transactions of the read-only primary", operationInterval)),
	}
}

// repairRules configure one instance as the primary and the other instances as its replicas.
func repairRules() []rule {
	return []rule{
		when("commits wait for fewer replicas than guaranteed", awaitsFewerThanGuaranteed,
			wait("the primary's commits wait for fewer replicas than the status guarantees; the number is recorded first",
				operationInterval)),
		forFirst("a second label of the primary", hasStalePrimaryLabel,
			act("is not the primary and loses its label", removeLabel)),
		when("the primary still replicates", primaryStillReplicates,
			act("is the primary and stops receiving from its source", stopIO)),
		when("the SQL thread of the primary is stopped", primaryCanApplyBacklog,
			act("is the primary and has to apply its relay log; its stopped SQL thread is started", restartSQL)),
		when("the primary applies its relay log", primaryHasBacklog, waitForBacklog),
		forFirst("weakened durability", hasWeakenedDurability,
			act("has settings that may lose commits; the settings are reset", restoreDurability)),
		when("configure the primary", primaryNeedsConfiguration, configurePrimary),
		when("a copy is writable", isCopyWritable,
			act("is a copy of the external server and is made read-only", setReadOnly)),
		when("follow the external server", needsSourceOutside, followSourceOutside),
		when("accounts of a copy", needsAccountsOfCopy, takeOverAccounts),
		when("the copy does not receive", isCopyIdle,
			act("is the primary and stopped receiving from the external server", startIO)),
		when("make the primary writable", shouldMakeWritable, makePrimaryWritable),
		when("label the primary", primaryNeedsLabel, act("is the primary and gets its label", labelAs(RolePrimary))),
		forFirst("a replica has another source", replicatesFromWrongSource,
			act("stops receiving from a source that is not the primary", stopIO)),
		forFirst("a replica does not apply", sqlThreadStopped,
			act("stopped applying its relay log without an error; its SQL thread is started", restartSQL)),
		forFirst("configure a replica", needsReplicaConfiguration, configureReplica),
		forFirst("a replica does not receive", ioThreadStopped,
			act("stopped receiving from the primary; its IO thread is started", startIO)),

		when("quiescing", isStopAsked, waitForStop),
	}
}

// upkeepRules handle tasks that do not begin once a stop is requested.
func upkeepRules() []rule {
	return []rule{
		forFirst("record transactions that a re-clone discards", needsDiscardRecord, recordDiscard),
		forFirst("hide an instance before its re-clone", isLabelledBeforeReclone,
			act("is about to be re-cloned and loses its label", removeLabel)),
		forFirst("empty an instance for its re-clone", mayBeEmptied, discardData),
		forFirst("clear a re-clone request", isRecloneRequestDone,
			act("is the primary or already empty, so its re-clone request is removed", clearReclone)),
		forFirst("clone a replica", needsClone, cloneReplica),
		forFirst("hide a replica with old data", isLabelledAndStale,
			act("does not follow, or is too far behind, and loses its label", removeLabel)),
		forFirst("label a replica", needsReplicaLabel, act("follows and gets its label", labelAs(RoleReplica))),
		when("protect the primary's Pod", needsProtection,
			act("is the primary, and a replica lags; its Pod is protected", protectPod)),
		forFirst("end the protection of a Pod", hasNeedlessProtection,
			act("no longer needs protection; its Pod may be deleted", unprotectPod)),
		forFirst("clear a demotion request", hasSteppedDown,
			act("is no longer the primary, so its demotion request is removed", clearDemote)),
		when("outdated accounts", hasOldAccounts, renewAccounts),
		forFirst("replication channel has another CA than the primary", knowsNoLongerThePrimary,
			act("has a certificate from another Secret than the primary; its channel is renewed", renewChannel)),
		forFirst("replication channel does not verify the primary", hasUnverifiedChannel,
			act("follows without verifying the primary's certificate; its channel is renewed", renewChannel)),
		forFirst("certificate is due for renewal", needsReload,
			act("presents a certificate that is due for renewal; the server reloads its files", reloadCertificate)),
		when("make new passwords", needsNextPasswords,
			act("is the primary; new passwords are generated", prepareRotation)),
		when("give accounts two passwords", needsSecondPasswords,
			act("gives every account a new password and keeps the old one", retainPasswords)),
		when("replicas lack the new passwords", areReplicasBehindRotation,
			wait("replicas have not executed the password change yet", operationInterval)),
		forFirst("a channel with an old password", hasOldChannelPassword,
			act("logs in with an old password; its channel is renewed", renewChannel)),
		when("promote the new passwords", mayPromotePasswords, promotePasswords),
		when("old passwords are still in files", arePasswordsUnknown,
			wait("the kubelet may not have replaced all files with the old passwords yet", degradedInterval)),
		when("discard the old passwords", mayDiscardPasswords, act("discards the old passwords", discardPasswords)),
		when("rotation is complete", isRotationDone, endRotation),
		when("remove leftovers of a stop", hasLeftovers, removeLeftovers),
		when("settled", decision.Always, settle),
	}
}

// Decide returns the plan of the first rule that matches. It is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	d := derive(o)
	plan, name := decision.First(rules(), d)
	plan.Rule = name
	if plan.Do == nil {
		plan.Do = Nothing{}
	}
	return report(d, plan)
}

// when returns a rule about the primary, or about the cluster as a whole.
func when(name string, holds func(*derivedFacts) bool, then func(*derivedFacts, *instanceFacts) Plan) rule {
	return rule{Name: name, When: holds, Then: func(d *derivedFacts) Plan { return then(d, d.primary) }}
}

// forFound returns a rule about the instance that find returns. The rule matches if find returns an instance.
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

// act returns a function that plans an action on the instance that the rule found.
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
func protectPod(i int) Action      { return SetProtection{Index: i, Protected: true} }
func unprotectPod(i int) Action    { return SetProtection{Index: i} }

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
		return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer, but its replicas receive from it",
			p.Index), After: after}
	}
	return Plan{Why: fmt.Sprintf("the primary, instance %d, does not answer", p.Index), After: suspicionInterval}
}

// settle returns the plan for a cluster that needs no action.
func settle(d *derivedFacts, _ *instanceFacts) Plan {
	plan := Plan{Why: "nothing to do", After: healthyInterval}
	isUnwatched := d.any(func(i *instanceFacts) bool { return i.IsUnwatched })
	if d.state != StateHealthy || d.switchoverRequested || !d.primary.Past.StalledSince.IsZero() ||
		d.any(isHidden) || isUnwatched || isGuaranteeDue(d) {
		plan.After = degradedInterval
	}
	for _, i := range d.instances {
		for _, limit := range []time.Duration{d.MaxDelay, d.MaxDelayForDeletion} {
			if isLagging := !i.IsPrimary && limit > 0 && i.Channel.Lag > 0; isLagging { // The lag may reach the limit after this time.
				plan.After = min(plan.After, max(limit-i.Channel.Lag, degradedInterval))
			}
		}
	}
	return plan
}

// Plan is the result of Decide: at most one action, and the data to report.
type Plan struct {
	// Rule is the name of the rule that matched. Why describes the action, or the reason to wait. While a stop is not
	// reached yet, status.pause contains Why.
	Rule, Why string
	// Do is the action to perform.
	Do Action
	// State is the state of the cluster.
	State ClusterState
	// These are the conditions that this controller owns. Every plan sets them.
	Initialized, Available, Healthy, ClusteringActive decision.Condition
	// Instances contains the reports by index. Synced is the number of replicas in sync, and Errant lists the indexes
	// of the errant instances.
	Instances []InstanceReport
	Synced    int
	Errant    []int
	// GuaranteedAcks is the number of replicas that have every acknowledged commit. It is nil until a number is known.
	GuaranteedAcks *int
	// RecordsDiscard is true if the status has to list the transactions that instances lose when they are re-cloned.
	RecordsDiscard bool
	// Stop replaces the record of the stop; nil removes it. SourceDone means that the copy of the external server is
	// complete once the action has succeeded; the status then records this.
	Stop       *StopRecord
	SourceDone bool
	// StartFindings are the problems that a start of clustering would meet. They are set only while clustering is
	// stopped. StartRefused is true if the start was refused.
	StartFindings []Finding
	StartRefused  bool
	// Events are emitted once the action has succeeded and the status is saved.
	Events []decision.Event
	// After is the time until the next pass, unless an event triggers one earlier.
	After time.Duration
}

// ClusterState is the state of the cluster. The names are those that MOCO uses.
type ClusterState string

// These are the states of a cluster.
const (
	StateCloning    ClusterState = mocov1beta2.CloningReason
	StateRestoring  ClusterState = mocov1beta2.RestoringReason
	StateHealthy    ClusterState = mocov1beta2.HealthyReason
	StateDegraded   ClusterState = mocov1beta2.DegradedReason
	StateFailed     ClusterState = mocov1beta2.FailedReason
	StateLost       ClusterState = mocov1beta2.LostReason
	StateIncomplete ClusterState = mocov1beta2.IncompleteReason
	StateOffline    ClusterState = mocov1beta2.OfflineReason
)

// eventAction is the action field of the events of a plan.
const eventAction = "Cluster"

func normalEvent(reason, note string) decision.Event {
	return decision.Event{Reason: reason, Action: eventAction, Note: note}
}

func warningEvent(reason, note string) decision.Event {
	return decision.Event{Warning: true, Reason: reason, Action: eventAction, Note: note}
}

// Action is one change outside the manager. The set of actions is closed. Every action except RetainPasswords may be
// repeated, and most return soon. Most actions consist of one session in one server, or of one write to the API server.
// Later passes observe whether an action has taken effect.
//
//sumtype:decl
type Action interface{ targets() []int }

// Nothing is the empty action. The pass only reports.
type Nothing struct{}

// PromoteInStatus writes the new primary into the status, unless the status no longer contains the old one.
type PromoteInStatus struct{ Index, From int }

// SetReadOnly sets super_read_only. The statement waits for commits in progress, and may stay pending after the action
// has returned.
type SetReadOnly struct{ Index int }

// MakeWritable turns on semi-synchronous replication for WaitFor replicas, or off if WaitFor is 0, and then turns
// read_only off. Both happen in one session, because a server that restarts in between loses the first setting.
type MakeWritable struct{ Index, WaitFor int }

// KillConnections kills client sessions. With EndWaits it then also ends their waits for acknowledgements, in a server
// that is or becomes read-only.
//
// Invariant: a session is killed before its wait ends, so no client mistakes the end of its wait for an
// acknowledgement. The model of KillConnections in model_state_test.go keeps the order;
// TestSessionsOfUnacknowledgedCommitsAreEnded checks it with real servers.
type KillConnections struct {
	Index    int
	EndWaits bool
}

// CancelPending kills Torpor's own sessions in which a statement still runs.
type CancelPending struct{ Index int }

// StopIO fences instances. It kills Torpor's own sessions in which a statement still runs, and stops the IO thread.
type StopIO struct{ Indexes []int }

// StartIO starts the IO thread, which receives transactions.
type StartIO struct{ Index int }

// RestartSQL starts a stopped SQL thread, which applies transactions.
type RestartSQL struct{ Index int }

// ConfigurePrimary removes the replication channel with RESET REPLICA ALL and makes commits wait for WaitFor replicas.
type ConfigurePrimary struct{ Index, WaitFor int }

// ConfigureReplica makes an instance replicate from another one: semi-synchronous as a replica but not as a source,
// with both threads running. The source is changed only if it differs, because a change drops the relay log.
type ConfigureReplica struct{ Index, Source int }

// CloneFrom starts to copy another instance into an empty one. If Donor is NoInstance, the donor is the external
// server. The session first checks that the instance has neither executed nor received a transaction.
type CloneFrom struct{ Index, Donor int }

// FinishCopy runs the user's SQL in a copy of the external server, without writing it to the binary log.
type FinishCopy struct{ Index int }

// TakeOverAccounts creates the accounts in a copy of the external server. Accounts that came with the copy get the
// cluster's own passwords. Nothing is written to the binary log.
type TakeOverAccounts struct{ Index int }

// FollowOutside makes an instance replicate from the external server, without sending acknowledgements. The instance
// stays read-only.
type FollowOutside struct{ Index int }

// SetRole sets the label of the Pod. Before it adds a label, it kills all client sessions, because they may have
// connected under another label.
type SetRole struct {
	Index int
	Role  PodRole
}

// ClearDemote removes the Pod's annotation that requests a switchover.
type ClearDemote struct{ Index int }

// SetProtection sets or removes the annotation that prevents the deletion of the Pod.
type SetProtection struct {
	Index     int
	Protected bool
}

// ClearReclone removes the Pod's annotation that requests a re-clone.
type ClearReclone struct{ Index int }

// DiscardData makes an instance forget all its transactions, so it counts as empty and is cloned from the primary. Its
// binary logs are deleted. Its rows stay until the clone begins.
type DiscardData struct{ Index int }

// RestoreDurability resets settings that were changed in a running server, and with which acknowledged transactions may
// be lost.
type RestoreDurability struct{ Index int }

// RenewAccounts creates missing accounts, updates the privileges of the others, and makes expired passwords valid
// again.
type RenewAccounts struct{ Index int }

// RenewChannel makes a replica verify its source with the certificate authority in its own Secret, unless the source
// uses another Secret. It also makes the replica log in with the newest password that every server accepts.
type RenewChannel struct{ Index int }

// ReloadCertificate makes a server load the certificate that its files contain now.
type ReloadCertificate struct{ Index int }

// PrepareRotation writes new passwords to the cluster's Secret, next to the old ones.
type PrepareRotation struct{}

// RetainPasswords gives every account its new password and keeps the old one valid.
type RetainPasswords struct{ Index int }

// PromotePasswords replaces the old passwords in the cluster's Secret with the new ones.
type PromotePasswords struct{}

// DiscardPasswords makes the old passwords invalid.
type DiscardPasswords struct{ Index int }

// EndRotation removes the annotation that requests a rotation. Discarded is true if the accounts have one password
// again.
type EndRotation struct{ Discarded bool }

// EndStop removes the annotations of the stops whose end times have passed.
type EndStop struct{}

// RemoveLeftovers removes annotations that describe a stop, such as its reason, after the stop itself was removed.
type RemoveLeftovers struct{}

// TargetInstances returns the indexes of the instances that an action affects. A write to the MySQLCluster or its
// Secret affects none.
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
func (a SetProtection) targets() []int     { return []int{a.Index} }
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
