// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/internal/decision"
)

// Rules returns the ordered rules of the decision. The first rule that matches wins, and the last one always
// matches.
// Actions for a cluster that should run are independent of the reported situation: certificate requests are
// approved and machines are started in all of them.
// Destructive actions follow from the spec and the observed machines only; conditions are never read.
// Invariant: an action relies only on a record that an earlier pass has saved, so rules that write it come first
// (TestEveryStateConverges).
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "deleted", When: func(o Observed) bool { return o.Deleted }, Then: clusterDeleted},
		{Name: "paused", When: func(o Observed) bool { return o.Paused }, Then: powerPaused},
		{Name: "not installed", When: func(o Observed) bool { return !o.Installed }, Then: clusterNotInstalled},
		{Name: "infrastructure disabled", When: func(o Observed) bool { return o.IsInfraDisabled }, Then: infraDisabled},
		{Name: "invalid spec", When: func(o Observed) bool { return o.Invalid != "" }, Then: invalidSpec},
		{Name: "hibernating", When: IsAsleep, Then: clusterHibernates},
		{Name: "cannot hibernate", When: Observed.isRequestedHibernationUnsupported, Then: hibernationUnsupported},
		{Name: "machines not observed", When: func(o Observed) bool { return o.ObservationError != nil }, Then: observationFailed},
		{Name: "no machines", When: func(o Observed) bool { return len(o.Machines) == 0 && o.NoActuator == "" }, Then: noMachinesFound},

		{Name: "SyncSets not applied yet", When: Observed.awaitsFirstSync, Then: awaitFirstSync},
		{Name: "waiting to record nodes", When: Observed.awaitsNodeRecord, Then: awaitNodeRecord},
		{Name: "record nodes", When: func(o Observed) bool { return o.shouldHibernate() && !o.isHibernationOpen() }, Then: recordNodes},
		{Name: "drain workers", When: Observed.awaitsDrain, Then: drainWorkers},
		{Name: "record drain end", When: Observed.isDraining, Then: endDrain},
		{Name: "record spot machines", When: func(o Observed) bool { return len(o.spotMachinesToAdd()) > 0 }, Then: recordSpotMachines},
		{Name: "start machines again", When: Observed.awaitsSpotRecordInPart, Then: startMachinesAgain},
		{Name: "stop machines", When: func(o Observed) bool { return o.shouldHibernate() && len(o.machinesToStopNow()) > 0 }, Then: stopMachines},
		{Name: "terminate spot machines", When: func(o Observed) bool { return o.areOnlySpotMachinesLeft() && len(o.machinesToTerminate()) > 0 }, Then: terminateMachines},
		{Name: "machines are stopping", When: Observed.shouldHibernate, Then: awaitStopped},

		{Name: "record resume start", When: Observed.needsResumeRecord, Then: recordResume},
		{Name: "machines are starting", When: Observed.awaitsMachines, Then: awaitStarted},
		{Name: "resuming, API server not reachable", When: func(o Observed) bool { return o.API != Reachable && o.hasNotResumed() }, Then: awaitAPI},
		{Name: "running, API server not reachable", When: func(o Observed) bool { return o.API != Reachable }, Then: clusterUnreachable},
		{Name: "resuming, nodes not back", When: Observed.awaitsNodes, Then: awaitNodes},
		{Name: "resuming, operators not ready", When: Observed.awaitsOperators, Then: awaitOperators},
		{Name: "resuming, nodes cordoned", When: Observed.awaitsUncordon, Then: awaitUncordon},
		{Name: "running in part", When: func(o Observed) bool { return o.partialReason() != "" }, Then: clusterRunsInPart},
		{Name: "running", When: decision.Always[Observed], Then: clusterRuns},
	}
}

// Decide is total: every Observed has exactly one Plan (TestEveryObservationHasAHarmlessPlan).
func Decide(o Observed) Plan {
	plan, rule := decision.First(Rules(), o)
	plan.Rule, plan.Stalled = rule, o.stalledCondition(plan)
	plan.RequeueAfter = o.untilStopEnds(o.untilTimeout(plan.Record, plan.RequeueAfter))
	if plan.Do == nil {
		plan.Do = NoAction{}
	}
	return plan
}
