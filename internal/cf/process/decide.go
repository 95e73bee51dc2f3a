// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// staleInterval is when a view that seems stale is looked at again; what makes it fresh is an event too.
const staleInterval = 5 * time.Second

// Rule is one line of the decision.
type Rule struct {
	Name string
	When func(Observed) bool
	Then func(Observed) Plan
}

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does.
// LRPs are deleted because the spec and the revisions say so; conditions are never read.
func Rules() []Rule {
	return []Rule{
		{"deleted", func(o Observed) bool { return o.Deleted }, planDeleted},
		{"revision unreadable", func(o Observed) bool { return o.App.Unreadable != "" }, planUnreadable},
		{"newer revision", func(o Observed) bool { return o.newerLRP() != nil }, planNewerRevision},
		{"delete what has to go", func(o Observed) bool { return len(o.lrpsToDelete()) > 0 }, planDeletion},

		{"stopping", func(o Observed) bool { return !o.App.Started && !o.undrained().isEmpty() }, planStopping},
		{"stopped", func(o Observed) bool { return !o.App.Started }, planStopped},

		{"held until drained", Observed.waitsForDrain, planWaitForDrain},
		{"name is free soon", Observed.isNameInUse, planWaitForName},
		{"no droplet", func(o Observed) bool { return o.lacksTargetLRP() && o.NoDroplet != "" }, planNoDroplet},
		{"create", Observed.lacksTargetLRP, planCreate},
		{"scale", func(o Observed) bool { return o.targetLRP() != nil && o.targetLRP().Instances != o.wantedInstances() }, planScale},
		{"retire older", func(o Observed) bool { _, _, found := o.nextToRetire(); return found }, planRetire},

		{"canary waits", Observed.isCanaryComplete, planCanaryWaits},
		{"deploying", func(o Observed) bool { return len(o.olderLRPs()) > 0 }, planDeploying},
		{"starting", func(o Observed) bool { return o.podsOf(o.TargetRevision()).Ready < o.Desired }, planStarting},
		{"yielding", Observed.waitsForReplaced, planWaitForReplaced},
		{"running", func(Observed) bool { return true }, planRunning},
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
			p.Draining = drainingCondition(o)
			if p.After == 0 {
				p.After = timeUntilDrainTimeout(o)
			}
			return p
		}
	}
	return Plan{Do: Nothing{}}
}

// lacksTargetLRP: the current revision has no LRP and needs one.
func (o Observed) lacksTargetLRP() bool { return o.targetLRP() == nil && o.Desired > 0 }

// isNameInUse: the LRP that is needed cannot be made or used, because an object of its name is there and goes, or is another's.
func (o Observed) isNameInUse() bool {
	if current := o.targetLRP(); current != nil {
		return current.Deleting
	}
	if !o.lacksTargetLRP() {
		return false
	}
	name := revision.LRPName(o.ProcessGUID, o.TargetRevision())
	for _, l := range o.LRPs {
		if l.Name == name {
			return true
		}
	}
	return o.NameTaken
}

// timeUntilDrainTimeout is when the drain timeout lets the current revision start, or a deployment be through.
func timeUntilDrainTimeout(o Observed) time.Duration {
	left := o.undrained()
	if left.since.IsZero() && o.App.Started {
		left = o.replacedRemains()
	}
	if o.App.DrainTimeout == 0 || left.since.IsZero() || o.isOverdue(left) {
		return 0
	}
	return o.App.DrainTimeout - o.Now.Sub(left.since)
}
