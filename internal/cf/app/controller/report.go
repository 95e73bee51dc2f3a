// SPDX-License-Identifier: Apache-2.0

package controller

import (
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report writes what is known of an app into its status.
func (c Controller) report(obj *korifiv1alpha1.CFApp, seen *observation, _ app.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	r := app.UpdateStatus(seen.Observed)
	reconcile.SetConditions(&obj.Status.Conditions, map[string]decision.Condition{
		korifiv1alpha1.ReadyCondition: r.Ready, korifiv1alpha1.DrainingCondition: r.Draining,
	}, obj.Generation, c.Clock)
	out := reconcile.FollowUp{Rule: r.Ready.Reason, IsTransient: r.IsTransient}
	if r.Began != nil {
		out.Events = append(out.Events, decision.Event{Reason: revisionBegan, Action: string(r.Began.Cause), Note: app.RestartNote(r.Began, r.Unseen)})
		out.AfterSave = func() { c.Metrics.countRestarts(r.Began.Cause, r.Unseen+1) }
	}
	for _, p := range seen.created {
		out.Events = append(out.Events, decision.Event{Reason: processCreated, Action: "Create", Note: "made the process " + p.Name + " of type " + p.Spec.ProcessType})
	}
	return out
}
