// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/hibernation/csr"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report writes the plan into the status, and its refusal if its effect was refused: the report says when to try again.
func (c Controller) report(cd *hivev1.ClusterDeployment, seen *clusterObservation, plan hibernation.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	var approved []csr.Verdict
	if refused != nil {
		plan = plan.WithRefusal(actuator.ErrorClass(refused.Class), refused.Message)
	} else {
		approved = approvedVerdicts(seen, plan)
	}
	events := hibernation.TransitionEvents(cd.Status.Conditions, plan)
	if len(approved) > 0 {
		events = append(events, hibernation.ApprovalEvent(approvalNote(approved)))
	}
	reconcile.SetConditions(&cd.Status.Conditions, map[string]decision.Condition{
		hivev1.ClusterHibernatingCondition: plan.Hibernating,
		hivev1.ClusterReadyCondition:       plan.Ready,
		hivev1.ClusterUnreachableCondition: plan.Unreachable,
	}, cd.Generation, c.Clock)
	cd.Status.PowerState = hibernation.DisplayedPowerState(plan.Hibernating)
	cd.Status.Hibernation = plan.Record
	return reconcile.FollowUp{
		Rule: plan.Rule, RequeueAfter: plan.RequeueAfter, Events: events,
		AfterSave: func() { c.Metrics.countTransitions(events, approved) },
	}
}

// approvedVerdicts returns the verdicts that the plan carried out.
func approvedVerdicts(seen *clusterObservation, plan hibernation.Plan) []csr.Verdict {
	do, ok := plan.Do.(hibernation.ApproveRequests)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(seen.verdicts), func(v csr.Verdict) bool { return !slices.Contains(do.Requests, v.Name) })
}

func approvalNote(approved []csr.Verdict) string {
	var list []string
	for _, v := range approved {
		list = append(list, fmt.Sprintf("%s of %s (%s)", v.Kind, v.NodeName, v.Name))
	}
	return "Approved certificate requests: " + strings.Join(list, ", ")
}
