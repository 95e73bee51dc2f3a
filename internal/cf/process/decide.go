// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
)

// staleInterval is the requeue interval while cached objects seem stale, or while another client must act first. Events
// also trigger reconciliations.
const staleInterval = 5 * time.Second

// endSlack is the additional time that a kubelet has to report that a Pod has terminated.
const endSlack = 30 * time.Second

// Rules returns the rules in order. The first rule that matches is used, and the last one always matches. LRPs are
// deleted because of the app's spec and revisions, never because of conditions.
//
// Invariant: let r be the app's revision, s <= r the revision that its last stop began, and t the target revision, s
// <= t <= r. The rules delete every LRP below s before they create the LRP of t, and "new revision held until drained"
// delays that creation until no LRP and no Pod below s is left. So Pods of t never run while Pods of a revision below
// s remain, unless revisions may overlap or the drain timeout has passed. The model test
// TestEveryStateIsSafeAndConverges checks every interleaving.
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "process is deleted", When: Observed.isDeleted, Then: planDeleted},
		{Name: "revision unreadable", When: Observed.isAppUnreadable, Then: planUnreadable},
		// Invariant: this rule precedes every rule that deletes. An LRP above r proves that the cached app is stale. A
		// deletion decided from the stale app could remove an LRP that the app needs now.
		{Name: "LRP newer than the app", When: Observed.hasNewerLRP, Then: planNewerRevision},
		{Name: "delete obsolete LRPs", When: Observed.hasObsoleteLRPs, Then: planDeletion},

		{Name: "Korifi's Pods still exist", When: Observed.waitsForUpstream, Then: planWaitForUpstream},
		{Name: "stopping", When: Observed.isStopping, Then: planStopping},
		{Name: "stopped", When: Observed.isStopped, Then: planStopped},

		{Name: "new revision held until drained", When: Observed.waitsForDrain, Then: planWaitForDrain},
		{Name: "waiting for the LRP name", When: Observed.isNameInUse, Then: planWaitForName},
		{Name: "no droplet", When: Observed.lacksDroplet, Then: planNoDroplet},
		{Name: "create the LRP", When: Observed.lacksTargetLRP, Then: planCreate},
		{Name: "scale the LRP", When: Observed.needsScaling, Then: planScale},
		{Name: "retire replaced instances", When: Observed.hasReplacedInstances, Then: planRetire},

		{Name: "canary paused", When: Observed.isCanaryComplete, Then: planCanaryWaits},
		{Name: "deploying", When: Observed.isDeploying, Then: planDeploying},
		{Name: "starting", When: Observed.isStarting, Then: planStarting},
		{Name: "replaced instances are ending", When: Observed.waitsForReplaced, Then: planWaitForReplaced},
		{Name: "running", When: decision.Always[Observed], Then: planRunning},
	}
}

// Decide returns the plan for an observation. It is total: every Observed has exactly one Plan.
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

// isDeleted reports whether the process is being deleted, or its app is deleted.
func (o Observed) isDeleted() bool { return o.Deleted }

// isAppUnreadable reports whether the app's revision cannot be read.
func (o Observed) isAppUnreadable() bool { return o.App.Unreadable != "" }

// hasNewerLRP reports whether an LRP has a later revision than the app, which means that the cached app is stale.
func (o Observed) hasNewerLRP() bool { return o.newerLRP() != nil }

// hasObsoleteLRPs reports whether there are LRPs to delete.
func (o Observed) hasObsoleteLRPs() bool { return len(o.lrpsToDelete()) > 0 }

// isStopping reports whether the app should be stopped, but LRPs or Pods of the process remain.
func (o Observed) isStopping() bool { return !o.App.Started && !o.obsoleteRemains().isEmpty() }

// isStopped reports whether the app should be stopped. While LRPs or Pods remain, an earlier rule matches.
func (o Observed) isStopped() bool { return !o.App.Started }

// lacksDroplet reports whether the needed LRP cannot be created because its droplet is missing.
func (o Observed) lacksDroplet() bool { return o.lacksTargetLRP() && o.NoDroplet != "" }

// isDeploying reports whether there are LRPs that a deployment replaces.
func (o Observed) isDeploying() bool { return len(o.olderLRPs()) > 0 }

// isStarting reports whether fewer instances of the target revision are ready than desired.
func (o Observed) isStarting() bool { return o.podsOf(o.TargetRevision()).Ready < o.Desired }

// hasReplacedInstances reports whether instances of replaced revisions can be removed.
func (o Observed) hasReplacedInstances() bool {
	_, _, found := o.nextToRetire()
	return found
}

// lacksTargetLRP reports whether the target revision needs an LRP that does not exist.
func (o Observed) lacksTargetLRP() bool { return o.targetLRP() == nil && o.Desired > 0 }

// needsScaling reports whether the LRP of the target revision has a wrong number of instances.
func (o Observed) needsScaling() bool {
	target := o.targetLRP()
	return target != nil && target.Instances != o.wantedInstances()
}

// isNameInUse reports whether the target LRP cannot be created or used, because an LRP with its name is being deleted,
// or has another owner or revision.
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

// timeUntilDrainTimeout returns the time until the drain timeout, after which the target revision may start and a
// deployment may complete. It returns 0 if nothing is draining, or if the timeout is unlimited or has passed.
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
