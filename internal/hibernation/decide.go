// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/internal/decision"
)

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does. What is done for a cluster
// that should run goes with the report: certificates are approved and machines are started in each of its situations.
// Destructive acts follow from the spec and the observed machines; conditions are never read.
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "deleted", When: func(o Observed) bool { return o.Deleted }, Then: clusterDeleted},
		{Name: "paused", When: func(o Observed) bool { return o.Paused }, Then: powerPaused},
		{Name: "not installed", When: func(o Observed) bool { return !o.Installed }, Then: clusterNotInstalled},
		{Name: "invalid spec", When: func(o Observed) bool { return o.Invalid != "" }, Then: invalidSpec},
		{Name: "asleep", When: IsAsleep, Then: clusterHibernates},
		{Name: "cannot hibernate", When: Observed.isRequestedHibernationUnsupported, Then: hibernationUnsupported},
		{Name: "machines not observed", When: func(o Observed) bool { return o.ObservationError != nil }, Then: observationFailed},
		{Name: "no machines", When: func(o Observed) bool { return len(o.Machines) == 0 && o.NoActuator == "" }, Then: noMachinesFound},

		{Name: "SyncSets not applied yet", When: Observed.awaitsFirstSync, Then: awaitFirstSync},
		{Name: "nodes not read yet", When: Observed.awaitsNodeRecord, Then: awaitNodeRecord},
		{Name: "write the nodes down", When: func(o Observed) bool { return o.shouldHibernate() && !o.isHibernationOpen() }, Then: recordNodes},
		{Name: "drain workers", When: Observed.awaitsDrain, Then: drainWorkers},
		{Name: "end the drain", When: Observed.isDraining, Then: endDrain},
		{Name: "write spot machines down", When: func(o Observed) bool { return len(o.spotMachinesToAdd()) > 0 }, Then: recordSpotMachines},
		{Name: "start machines again", When: Observed.awaitsSpotRecordInPart, Then: startMachinesAgain},
		{Name: "stop machines", When: func(o Observed) bool { return o.shouldHibernate() && len(o.machinesToStopNow()) > 0 }, Then: stopMachines},
		{Name: "terminate spot machines", When: func(o Observed) bool { return o.areOnlySpotMachinesLeft() && len(o.machinesToTerminate()) > 0 }, Then: terminateMachines},
		{Name: "machines are stopping", When: Observed.shouldHibernate, Then: awaitStopped},

		{Name: "write the wake-up down", When: Observed.needsResumeRecord, Then: recordResume},
		{Name: "machines are starting", When: Observed.awaitsMachines, Then: awaitStarted},
		{Name: "waking, API silent", When: func(o Observed) bool { return o.API != Reachable && o.hasNotResumed() }, Then: awaitAPI},
		{Name: "awake, API silent", When: func(o Observed) bool { return o.API != Reachable }, Then: clusterUnreachable},
		{Name: "waking, nodes not back", When: Observed.awaitsNodes, Then: awaitNodes},
		{Name: "waking, operators not ready", When: Observed.awaitsOperators, Then: awaitOperators},
		{Name: "waking, nodes cordoned", When: Observed.awaitsUncordon, Then: awaitUncordon},
		{Name: "running in part", When: func(o Observed) bool { return o.partialReason() != "" }, Then: clusterRunsInPart},
		{Name: "running", When: decision.Always[Observed], Then: clusterRuns},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	plan, rule := decision.First(Rules(), o)
	plan.Rule, plan.Stalled = rule, o.stalledCondition(plan)
	plan.RequeueAfter = o.untilStopEnds(o.untilTimeout(plan.Record, plan.RequeueAfter))
	if plan.Do == nil {
		plan.Do = NoAction{}
	}
	return plan
}
