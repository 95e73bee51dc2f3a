// SPDX-License-Identifier: Apache-2.0

package controller

import (
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// report writes the plan into the status.
func (c Controller) report(s *torporv1alpha1.Slumber, _ *observation, plan slumber.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	conditions := s.Status.Conditions
	s.Status = plan.Status
	s.Status.Conditions = conditions
	if refused != nil {
		plan.NoteRefusal(refused.Error())
	}
	reconcile.SetConditions(&s.Status.Conditions, map[string]decision.Condition{
		torporv1alpha1.SlumberReadyCondition: plan.Ready, torporv1alpha1.SlumberStalledCondition: plan.Stalled,
	}, s.Generation, c.Clock)
	return reconcile.FollowUp{Rule: string(plan.Status.State), RequeueAfter: plan.RequeueAfter, Events: plan.Events}
}
