// SPDX-License-Identifier: Apache-2.0

package hibernation

import "github.com/torpor-dev/torpor/actuator"

// Rule is one line of the decision.
type Rule struct {
	Name string
	When func(Observed) bool
	Then func(Observed) Plan
}

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does.
// Destructive acts follow from the spec and the observed machines; conditions are never read.
func Rules() []Rule {
	return []Rule{
		{"deleted", func(o Observed) bool { return o.Deleted }, clusterDeleted},
		{"paused", func(o Observed) bool { return o.Paused }, powerPaused},
		{"not installed", func(o Observed) bool { return !o.Installed }, clusterNotInstalled},
		{"invalid spec", func(o Observed) bool { return o.Invalid != "" }, invalidSpec},
		{"cannot hibernate", Observed.cannotHibernate, hibernationUnsupported},
		{"machines not observed", func(o Observed) bool { return o.ObservationError != nil }, observationFailed},
		{"no machines", func(o Observed) bool { return len(o.Machines) == 0 && o.NoActuator == "" }, noMachinesFound},

		{"asleep", func(o Observed) bool { return o.shouldHibernate() && o.allMachinesAre(actuator.Stopped) }, clusterHibernates},
		{"nodes not read yet", Observed.awaitsNodeRecord, awaitNodeRecord},
		{"write the nodes down", func(o Observed) bool { return o.shouldHibernate() && !o.isHibernationRecorded() }, recordNodes},
		{"stop machines", func(o Observed) bool { return o.shouldHibernate() && o.anyMachineIs(actuator.Running) }, stopMachines},
		{"machines are stopping", Observed.shouldHibernate, awaitStopped},

		{"write the wake-up down", func(o Observed) bool { return o.anyMachineIs(actuator.Stopped) && !o.isResumeRecorded() }, recordResume},
		{"start machines", func(o Observed) bool { return o.anyMachineIs(actuator.Stopped) }, startMachines},
		{"machines are starting", func(o Observed) bool { return o.NoActuator == "" && !o.isPoweredOn() }, awaitStarted},
		{"waking, API silent", func(o Observed) bool { return o.API != Reachable && o.isResumeUnfinished() }, awaitAPI},
		{"awake, API silent", func(o Observed) bool { return o.API != Reachable }, clusterUnreachable},
		{"approve certificates", func(o Observed) bool { return len(o.Approvable) > 0 }, approveRequests},
		{"waking, nodes not back", func(o Observed) bool { return o.isResumeUnfinished() && len(o.missingNodes()) > 0 }, awaitNodes},
		{"running", func(Observed) bool { return true }, clusterRuns},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	for _, r := range Rules() {
		if r.When(o) {
			p := r.Then(o)
			p.Rule = r.Name
			if p.Do == nil {
				p.Do = NoAction{}
			}
			return p
		}
	}
	return Plan{Do: NoAction{}}
}
