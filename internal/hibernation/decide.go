// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does.
// Destructive acts follow from the spec and the observed machines; conditions are never read.
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "deleted", When: func(o Observed) bool { return o.Deleted }, Then: clusterDeleted},
		{Name: "paused", When: func(o Observed) bool { return o.Paused }, Then: powerPaused},
		{Name: "not installed", When: func(o Observed) bool { return !o.Installed }, Then: clusterNotInstalled},
		{Name: "invalid spec", When: func(o Observed) bool { return o.Invalid != "" }, Then: invalidSpec},
		{Name: "cannot hibernate", When: Observed.isRequestedHibernationUnsupported, Then: hibernationUnsupported},
		{Name: "machines not observed", When: func(o Observed) bool { return o.ObservationError != nil }, Then: observationFailed},
		{Name: "no machines", When: func(o Observed) bool { return len(o.Machines) == 0 && o.NoActuator == "" }, Then: noMachinesFound},

		{Name: "asleep", When: func(o Observed) bool { return o.shouldHibernate() && o.allMachinesAre(actuator.Stopped) }, Then: clusterHibernates},
		{Name: "nodes not read yet", When: Observed.awaitsNodeRecord, Then: awaitNodeRecord},
		{Name: "write the nodes down", When: func(o Observed) bool { return o.shouldHibernate() && !o.isHibernationOpen() }, Then: recordNodes},
		{Name: "stop machines", When: func(o Observed) bool { return o.shouldHibernate() && o.anyMachineIs(actuator.Running) }, Then: stopMachines},
		{Name: "machines are stopping", When: Observed.shouldHibernate, Then: awaitStopped},

		{Name: "write the wake-up down", When: func(o Observed) bool { return o.anyMachineIs(actuator.Stopped) && !o.isResuming() }, Then: recordResume},
		{Name: "start machines", When: func(o Observed) bool { return o.anyMachineIs(actuator.Stopped) }, Then: startMachines},
		{Name: "machines are starting", When: func(o Observed) bool { return o.NoActuator == "" && !o.isPowerOnComplete() }, Then: awaitStarted},
		{Name: "waking, API silent", When: func(o Observed) bool { return o.API != Reachable && o.hasNotResumed() }, Then: awaitAPI},
		{Name: "awake, API silent", When: func(o Observed) bool { return o.API != Reachable }, Then: clusterUnreachable},
		{Name: "approve certificates", When: func(o Observed) bool { return len(o.Approvable) > 0 }, Then: approveRequests},
		{Name: "waking, nodes not back", When: func(o Observed) bool { return o.hasNotResumed() && len(o.missingNodes()) > 0 }, Then: awaitNodes},
		{Name: "running", When: decision.Always[Observed], Then: clusterRuns},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	plan, rule := decision.First(Rules(), o)
	plan.Rule = rule
	if plan.Do == nil {
		plan.Do = NoAction{}
	}
	return plan
}
