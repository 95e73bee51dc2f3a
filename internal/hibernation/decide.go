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
		{"deleted", func(o Observed) bool { return o.Deleted }, deleted},
		{"paused", func(o Observed) bool { return o.Paused }, paused},
		{"not installed", func(o Observed) bool { return !o.Installed }, notInstalled},
		{"invalid spec", func(o Observed) bool { return o.Invalid != "" }, invalidSpec},
		{"cannot hibernate", Observed.refused, unsupported},
		{"machines not observed", func(o Observed) bool { return o.Trouble != nil }, inTrouble},
		{"no machines", func(o Observed) bool { return len(o.Machines) == 0 && o.NoActuator == "" }, noMachines},

		{"asleep", func(o Observed) bool { return o.wantsSleep() && o.all(actuator.Stopped) }, hibernating},
		{"nodes not read yet", Observed.unread, waitNodesRead},
		{"write the nodes down", func(o Observed) bool { return o.wantsSleep() && !o.asleep() }, recordNodes},
		{"stop machines", func(o Observed) bool { return o.wantsSleep() && o.some(actuator.Running) }, stopMachines},
		{"machines are stopping", Observed.wantsSleep, waitStopped},

		{"write the wake-up down", func(o Observed) bool { return o.some(actuator.Stopped) && !o.waking() }, recordWake},
		{"start machines", func(o Observed) bool { return o.some(actuator.Stopped) }, startMachines},
		{"machines are starting", func(o Observed) bool { return o.NoActuator == "" && !o.up() }, waitStarted},
		{"waking, API silent", func(o Observed) bool { return o.API != Reachable && o.resuming() }, waitAPI},
		{"awake, API silent", func(o Observed) bool { return o.API != Reachable }, runningUnreachable},
		{"approve certificates", func(o Observed) bool { return len(o.Approvable) > 0 }, approve},
		{"waking, nodes not back", func(o Observed) bool { return o.resuming() && len(o.missing()) > 0 }, waitNodes},
		{"running", func(Observed) bool { return true }, running},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	for _, r := range Rules() {
		if r.When(o) {
			p := r.Then(o)
			p.Rule = r.Name
			if p.Do == nil {
				p.Do = Nothing{}
			}
			return p
		}
	}
	return Plan{Do: Nothing{}}
}
