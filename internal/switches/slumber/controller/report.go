// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// report writes the plan into the status.
func (c Controller) report(s *torporv1alpha1.Slumber, _ *observation, plan slumber.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	conditions, observed := s.Status.Conditions, s.Status.ObservedGeneration
	s.Status = plan.Status
	s.Status.Conditions = conditions
	if refused != nil {
		plan.NoteRefusal(refused.Error())
	}
	reconcile.SetConditions(&s.Status.Conditions, map[string]decision.Condition{
		torporv1alpha1.SlumberReadyCondition: plan.Ready, torporv1alpha1.SlumberStalledCondition: plan.Stalled,
	}, s.Generation, c.Clock)
	out := reconcile.FollowUp{
		Rule: string(plan.Status.State), RequeueAfter: plan.RequeueAfter, Events: plan.Events, Request: describeState(s),
	}
	if s.Generation != observed {
		asked := describeState(s)
		asked.Requester = stoprecord.LastWriter(s)
		out.Changes = []decision.Change{{What: "Schedule changed", Request: asked}}
	}
	return out
}

// describeState returns the requester, the reason, and the time of the next transition, for the log.
func describeState(s *torporv1alpha1.Slumber) decision.Request {
	asked := decision.Request{Requester: stoprecord.NameSlumber(s.Name), Reason: s.Spec.Reason}
	if next := s.Status.NextTransitions; len(next) > 0 {
		asked.Until = next[0].At.UTC().Format(time.RFC3339)
	}
	return asked
}
