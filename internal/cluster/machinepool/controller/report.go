// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// nextJobDelay is the delay between saving the result of a job and submitting the next job.
const nextJobDelay = time.Millisecond

// report writes the pool's state into the status.
func (c Controller) report(pool *hivev1.MachinePool, seen *poolObservation, plan machinepool.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	conditions := pool.Status.Conditions
	pool.Status = plan.Status
	pool.Status.Conditions = conditions
	reconcile.SetConditions(&pool.Status.Conditions, map[string]decision.Condition{
		hivev1.MachinePoolSyncedCondition:        plan.Synced,
		hivev1.NotEnoughReplicasCondition:        plan.NotEnough,
		hivev1.UnsupportedConfigurationCondition: plan.Unsupported,
	}, pool.Generation, c.Clock)
	out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: plan.RequeueAfter, Events: plan.Events}
	switch {
	case seen.Answer != nil:
		answer := seen.Answer
		out.AfterSave = func() { c.runner.Reported(seen.pool, answer) }
		if plan.Job != nil {
			out.RequeueAfter = nextJobDelay
		}
	case plan.Job != nil:
		out.IsTransient = true // The result of the job follows soon, with more details.
	}
	return out
}
