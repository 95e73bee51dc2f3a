// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
)

// staleInterval is when a view that seems stale is looked at again; what makes it fresh is an event too.
const staleInterval = 5 * time.Second

// endSlack is how much longer than it should a kubelet may take to say that a Pod has ended.
const endSlack = 30 * time.Second

// Rules returns the whole decision in its order: the first rule that matches wins, and the last always does.
// LRPs are deleted because the spec and the revisions say so; conditions are never read.
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "deleted", When: func(o Observed) bool { return o.Deleted }, Then: planDeleted},
		{Name: "revision unreadable", When: func(o Observed) bool { return o.App.Unreadable != "" }, Then: planUnreadable},
		// Before anything is deleted: an LRP above the app's revision shows that the view of the app is stale.
		{Name: "newer revision", When: func(o Observed) bool { return o.newerLRP() != nil }, Then: planNewerRevision},
		{Name: "delete what has to go", When: func(o Observed) bool { return len(o.lrpsToDelete()) > 0 }, Then: planDeletion},

		{Name: "beside Korifi's Pods", When: Observed.waitsForUpstream, Then: planWaitForUpstream},
		{Name: "stopping", When: func(o Observed) bool { return !o.App.Started && !o.obsoleteRemains().isEmpty() }, Then: planStopping},
		{Name: "stopped", When: func(o Observed) bool { return !o.App.Started }, Then: planStopped},

		{Name: "held until drained", When: Observed.waitsForDrain, Then: planWaitForDrain},
		{Name: "name is free soon", When: Observed.isNameInUse, Then: planWaitForName},
		{Name: "no droplet", When: func(o Observed) bool { return o.lacksTargetLRP() && o.NoDroplet != "" }, Then: planNoDroplet},
		{Name: "create", When: Observed.lacksTargetLRP, Then: planCreate},
		{Name: "scale", When: Observed.needsScaling, Then: planScale},
		{Name: "retire replaced", When: func(o Observed) bool { _, _, found := o.nextToRetire(); return found }, Then: planRetire},

		{Name: "canary waits", When: Observed.isCanaryComplete, Then: planCanaryWaits},
		{Name: "deploying", When: func(o Observed) bool { return len(o.olderLRPs()) > 0 }, Then: planDeploying},
		{Name: "starting", When: func(o Observed) bool { return o.podsOf(o.TargetRevision()).Ready < o.Desired }, Then: planStarting},
		{Name: "yielding", When: Observed.waitsForReplaced, Then: planWaitForReplaced},
		{Name: "running", When: decision.Always[Observed], Then: planRunning},
	}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	p, name := decision.First(Rules(), o)
	p.Rule, p.Draining = name, drainingCondition(o)
	if p.Do == nil {
		p.Do = Nothing{}
	}
	if p.After == 0 {
		p.After = timeUntilDrainTimeout(o)
	}
	if late := o.timeUntilLate(); late > 0 && (p.After == 0 || late < p.After) {
		p.After = late
	}
	return p
}

// lacksTargetLRP reports whether the target revision needs an LRP and has none.
func (o Observed) lacksTargetLRP() bool { return o.targetLRP() == nil && o.Desired > 0 }

func (o Observed) needsScaling() bool {
	target := o.targetLRP()
	return target != nil && target.Instances != o.wantedInstances()
}

// isNameInUse reports whether the LRP that is needed cannot be made or used, because an object of its name is being deleted,
// or is another's.
func (o Observed) isNameInUse() bool {
	if target := o.targetLRP(); target != nil {
		return target.Deleting
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

// timeUntilDrainTimeout returns when the drain timeout lets the target revision start, or completes a deployment; 0 if there
// is nothing to wait for.
func timeUntilDrainTimeout(o Observed) time.Duration {
	waitedFor := o.obsoleteRemains()
	if waitedFor.since.IsZero() && o.App.Started {
		waitedFor = o.replacedRemains()
	}
	if o.App.DrainTimeout == 0 || waitedFor.since.IsZero() || o.isOverdue(waitedFor) {
		return 0
	}
	return o.App.DrainTimeout - o.Now.Sub(waitedFor.since)
}
