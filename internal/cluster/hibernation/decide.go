// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/internal/decision"
)

// Rules returns the ordered rules of the decision. The first matching rule wins, and the last one always matches. The
// action for a cluster that should run does not depend on the reported problem: withAction approves certificate
// requests and starts machines whether machines, nodes, groups or operators are missing.
// Destructive actions follow only from the requested power state, the saved record and observations. No action follows
// from a condition. Only WereOperatorsMissing is derived from conditions in the status: it only causes reads of the
// ClusterOperators.
// Invariant: actions rely only on a record that an earlier pass has saved, so rules that write the record come first
// (TestEveryStateConverges).
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "ClusterDeployment is being deleted", When: Observed.isDeleted, Then: clusterDeleted},
		{Name: "power management is paused", When: Observed.isPaused, Then: powerPaused},
		{Name: "not installed", When: Observed.isNotInstalled, Then: clusterNotInstalled},
		{Name: "infrastructure disabled", When: Observed.isUnmanaged, Then: infraDisabled},
		{Name: "invalid spec", When: Observed.hasInvalidSpec, Then: invalidSpec},
		{Name: "hibernating", When: IsAsleep, Then: clusterHibernates},
		{Name: "requested hibernation not supported", When: Observed.isRequestedHibernationUnsupported, Then: hibernationUnsupported},
		{Name: "machines not observed", When: Observed.hasObservationError, Then: observationFailed},
		{Name: "no machines found", When: Observed.lacksMachines, Then: noMachinesFound},

		{Name: "hibernation refused", When: Observed.isHibernationRefused, Then: hibernationRefused},
		{Name: "SyncSets not applied yet", When: Observed.awaitsFirstSync, Then: awaitFirstSync},
		{Name: "waiting to record nodes", When: Observed.awaitsNodeRecord, Then: awaitNodeRecord},
		{Name: "record nodes", When: Observed.needsNodeRecord, Then: recordNodes},
		{Name: "drain workers", When: Observed.awaitsDrain, Then: drainWorkers},
		{Name: "record drain end", When: Observed.isDraining, Then: endDrain},
		{Name: "record spot machines", When: Observed.hasUnrecordedSpotMachines, Then: recordSpotMachines},
		{Name: "start machines again", When: Observed.awaitsSpotRecordInPart, Then: startMachinesAgain},
		{Name: "record machine groups", When: Observed.hasUnrecordedGroups, Then: recordGroups},
		{Name: "record paused groups", When: Observed.hasUnrecordedPauses, Then: recordPauses},
		{Name: "suspend, pause or scale machine groups", When: Observed.hasGroupsToHold, Then: holdGroups},
		{Name: "stop machines", When: Observed.hasMachinesToStop, Then: stopMachines},
		{Name: "terminate spot machines", When: Observed.hasMachinesToTerminate, Then: terminateMachines},
		{Name: "machines are stopping", When: Observed.shouldHibernate, Then: awaitStopped},

		{Name: "record resume start", When: Observed.needsResumeRecord, Then: recordResume},
		{Name: "machines are starting", When: Observed.awaitsMachines, Then: awaitStarted},
		{Name: "resuming, API server not reachable", When: Observed.awaitsAPI, Then: awaitAPI},
		{Name: "running, API server not reachable", When: Observed.isUnreachable, Then: clusterUnreachable},
		{Name: "resuming, nodes have not reported", When: Observed.awaitsNodes, Then: awaitNodes},
		{Name: "resuming, machine groups not restored", When: Observed.awaitsGroups, Then: awaitGroups},
		{Name: "resuming, operators not ready", When: Observed.awaitsOperators, Then: awaitOperators},
		{Name: "resuming, nodes cordoned", When: Observed.awaitsUncordon, Then: awaitUncordon},
		{Name: "running in part", When: Observed.runsInPart, Then: clusterRunsInPart},
		{Name: "running", When: decision.Always[Observed], Then: clusterRuns},
	}
}

// Decide is total: every Observed has exactly one Plan (TestEveryObservationHasAHarmlessPlan).
func Decide(o Observed) Plan {
	plan, rule := decision.First(Rules(), o)
	plan.Record = o.settleGroups(plan.Record)
	plan.Rule, plan.Stalled = rule, o.stalledCondition(plan)
	plan.RequeueAfter = o.untilStopEnds(o.untilTimeout(plan.Record, plan.RequeueAfter))
	if plan.Do == nil {
		plan.Do = NoAction{}
	}
	return plan
}

// isDeleted reports whether the ClusterDeployment is being deleted.
func (o Observed) isDeleted() bool { return o.Deleted }

// isPaused reports whether an annotation pauses changes to the power state.
func (o Observed) isPaused() bool { return o.Paused }

// isNotInstalled reports whether the cluster is not installed yet.
func (o Observed) isNotInstalled() bool { return !o.Installed }

// isUnmanaged reports whether the owner of the machines has opted out of power management.
func (o Observed) isUnmanaged() bool { return o.IsInfraDisabled }

// hasInvalidSpec reports whether fields of the spec are missing or malformed.
func (o Observed) hasInvalidSpec() bool { return o.Invalid != "" }

// hasObservationError reports whether the machines could not be listed.
func (o Observed) hasObservationError() bool { return o.ObservationError != nil }

// lacksMachines reports whether an actuator lists no machine, and no group is scaled to zero.
func (o Observed) lacksMachines() bool {
	return len(o.Machines) == 0 && o.NoActuator == "" && !o.hasScaledGroups()
}

// needsNodeRecord reports whether a hibernation is due whose record has not been written yet.
func (o Observed) needsNodeRecord() bool { return o.shouldHibernate() && !o.isHibernationOpen() }

// hasUnrecordedSpotMachines reports whether machines that may be terminated are not in the record yet.
func (o Observed) hasUnrecordedSpotMachines() bool { return len(o.spotMachinesToAdd()) > 0 }

// hasMachinesToStop reports whether machines may be stopped now.
func (o Observed) hasMachinesToStop() bool {
	return o.shouldHibernate() && len(o.machinesToStopNow()) > 0
}

// hasMachinesToTerminate reports whether the only machines left on are spot machines, which cannot be stopped.
func (o Observed) hasMachinesToTerminate() bool {
	return o.areOnlySpotMachinesLeft() && len(o.machinesToTerminate()) > 0
}

// awaitsAPI reports whether the API server of a resuming cluster does not respond yet.
func (o Observed) awaitsAPI() bool { return o.API != Reachable && o.hasNotResumed() }

// isUnreachable reports whether the cluster's API server does not respond.
func (o Observed) isUnreachable() bool { return o.API != Reachable }

// runsInPart reports whether a cluster that counts as running lacks nodes or machines, or machine groups are not
// restored.
func (o Observed) runsInPart() bool { return o.partialReason() != "" }
