// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// nextJobDelay is the delay between saving the result of a job and submitting the next job.
const nextJobDelay = time.Millisecond

// report writes the results of the sets into the status.
func (c Controller) report(cs *hiveinternalv1alpha1.ClusterSync, seen *clusterObservation, plan syncset.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	conditions := cs.Status.Conditions
	cs.Status = plan.Status
	cs.Status.Conditions = conditions
	reconcile.SetConditions(&cs.Status.Conditions, map[string]decision.Condition{
		hiveinternalv1alpha1.ClusterSyncFailedCondition: plan.Failed,
		hiveinternalv1alpha1.ClusterSyncedCondition:     plan.Synced,
	}, cs.Generation, c.Clock)
	out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: plan.RequeueAfter, Events: plan.Events}
	switch {
	case seen.Answer != nil:
		answer := seen.Answer
		out.AfterSave = func() { c.applier.Reported(seen.cluster, answer) }
		if plan.Job != nil {
			out.RequeueAfter = nextJobDelay
		}
	case plan.Job != nil:
		out.IsTransient = true // The result of the job follows soon, with more details.
	}
	return out
}
