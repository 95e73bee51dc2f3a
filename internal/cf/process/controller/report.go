// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report writes the observed state to the status.
func (c Controller) report(obj *korifiv1alpha1.CFProcess, seen *observation, plan process.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	if refused != nil {
		plan.Ready.Message += "; " + refused.Error()
		if _, starts := plan.Do.(process.CreateLRP); starts {
			// Clients show the message of the reason Blocked, but not that of a progress reason.
			plan.Ready = decision.False(korifiv1alpha1.BlockedReason, plan.Ready.Message)
		}
	}
	c.Metrics.trackDrain(obj.UID, plan.Draining.Status == metav1.ConditionTrue && !seen.Deleted, seen.Now)
	before, status := obj.Status.DeepCopy(), &obj.Status
	status.ObservedGeneration = obj.Generation
	if seen.App.Unreadable == "" && !seen.Deleted {
		status.ObservedRevision = seen.App.Revision
	}
	status.Revisions = revisionStatuses(seen.Observed, before.Revisions)
	status.InstancesStatus, status.ActualInstances = instanceStatuses(seen), 0
	for _, one := range status.InstancesStatus {
		if one.State == korifiv1alpha1.RunningInstance {
			status.ActualInstances++
		}
	}
	status.DrainingInstances = seen.CountDraining()
	reconcile.SetConditions(&status.Conditions, map[string]decision.Condition{
		korifiv1alpha1.ReadyCondition: plan.Ready, korifiv1alpha1.DrainingCondition: plan.Draining,
	}, obj.Generation, c.Clock)
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int { return -cmp.Compare(a.Type, b.Type) })
	out := reconcile.FollowUp{RequeueAfter: plan.After, Rule: plan.Rule, IsTransient: isTransient(before, status, plan)}
	if end := seen.scheduledEnd(); !end.IsZero() && (out.RequeueAfter == 0 || end.Sub(seen.Now) < out.RequeueAfter) {
		out.RequeueAfter = end.Sub(seen.Now)
	}
	if showsDrainTimeout(status.Conditions) && !showsDrainTimeout(before.Conditions) {
		out.Events = append(out.Events, decision.Event{Warning: true, Reason: drainTimedOut, Action: "Drain", Note: plan.Draining.Message})
	}
	out.AfterSave = func() { c.Metrics.observeFirstReady(seen, before) }
	return out
}

// isTransient reports whether the status describes progress, which is written only if it continues for some time. Any
// other status is written immediately. A drain timeout, and the loss of a ready instance while the revision stays the
// same, are also written immediately.
func isTransient(before, status *korifiv1alpha1.CFProcessStatus, plan process.Plan) bool {
	if !process.IsProgressReason(plan.Ready.Reason) {
		return false
	}
	was := meta.FindStatusCondition(before.Conditions, korifiv1alpha1.ReadyCondition)
	lost := was != nil && was.Reason == korifiv1alpha1.RunningReason && plan.Ready.Reason == korifiv1alpha1.StartingReason &&
		before.ObservedRevision == status.ObservedRevision
	return !lost && plan.Draining.Reason != korifiv1alpha1.DrainTimeoutReason
}

func showsDrainTimeout(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, korifiv1alpha1.DrainingCondition)
	return c != nil && c.Reason == korifiv1alpha1.DrainTimeoutReason
}

// revisionStatuses returns the statuses of all revisions with an LRP or Pods, oldest first. before holds the statuses
// of the previous report.
func revisionStatuses(o process.Observed, before []korifiv1alpha1.RevisionStatus) []korifiv1alpha1.RevisionStatus {
	byRevision := map[int64]*korifiv1alpha1.RevisionStatus{}
	of := func(revision int64) *korifiv1alpha1.RevisionStatus {
		if byRevision[revision] == nil {
			byRevision[revision] = &korifiv1alpha1.RevisionStatus{Revision: revision}
		}
		return byRevision[revision]
	}
	for _, l := range o.LRPs {
		if r := of(l.Revision); !l.Deleting {
			r.Desired, r.Restorable = l.Instances, true
		}
	}
	for _, p := range o.Pods {
		r := of(p.Revision)
		r.Ready, r.Draining = p.Ready, p.Draining
	}
	for _, was := range before {
		if r := byRevision[was.Revision]; r != nil {
			r.FirstReadyAt = was.FirstReadyAt
		}
	}
	var all []korifiv1alpha1.RevisionStatus
	for _, r := range byRevision {
		if r.FirstReadyAt == nil && r.Ready > 0 {
			r.FirstReadyAt = &metav1.Time{Time: o.Now}
		}
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b korifiv1alpha1.RevisionStatus) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}

// instanceStatuses returns the statuses of the target revision's instances by index. It omits Pods that are terminating
// or have left their Services.
func instanceStatuses(seen *observation) map[string]korifiv1alpha1.InstanceStatus {
	all := map[string]korifiv1alpha1.InstanceStatus{}
	for i := range seen.pods {
		pod := &seen.pods[i]
		index := podstatus.InstanceIndex(pod)
		if index != "" && !podstatus.IsEnding(pod) && revision.ParseVersion(pod.Labels[korifiv1alpha1.VersionLabel]) == seen.TargetRevision() {
			one := podstatus.InstanceStatus(pod)
			if refusal := seen.TargetRefusal(); refusal != "" && podstatus.DescribePullFailure(pod) != "" {
				one.Details = refusal
			}
			all[index] = one
		}
	}
	return all
}
