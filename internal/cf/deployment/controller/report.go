// SPDX-License-Identifier: Apache-2.0

package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/deployment"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report writes the progress of the deployment to its status. In the status of a finished deployment, it changes only
// the observed generation.
func (c Controller) report(d *torporv1alpha1.CFDeployment, seen deployment.Observed, plan deployment.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	status, out := &d.Status, reconcile.FollowUp{Rule: plan.Why}
	if revision.IsDeploymentOver(d) {
		status.ObservedGeneration = d.Generation
		return out
	}
	if refused != nil {
		return out // The plan's state does not apply, because the app was not changed.
	}
	if seen.AnotherWriter != "" {
		out.RequeueAfter = reconcile.OtherWriterInterval // The expiry of the other writer's Lease triggers no event.
	}
	if plan.LookAgain {
		out.RequeueAfter = followUpInterval
	}
	status.ObservedGeneration = d.Generation
	if status.Reason != plan.State {
		status.LastChange = new(metav1.NewTime(c.Clock.Now()))
	}
	status.Reason, status.Message = plan.State, plan.Why
	status.Value = torporv1alpha1.ActiveDeployment
	switch plan.State {
	case torporv1alpha1.DeployedState, torporv1alpha1.CanceledState, torporv1alpha1.SupersededState:
		status.Value = torporv1alpha1.FinalizedDeployment
	case torporv1alpha1.DeployingState, torporv1alpha1.PausedState, torporv1alpha1.CancelingState:
	}
	if plan.Prepare {
		status.Prepared, status.FormerDroplet = true, seen.App.Annotations[torporv1alpha1.DropletAnnotation]
	}
	if plan.Revision != 0 {
		status.Revision = plan.Revision
	}
	if status.TotalSteps = deployment.CountSteps(d); status.TotalSteps > 0 {
		status.CurrentStep = min(d.Spec.ContinuedSteps+1, status.TotalSteps)
	}
	return out
}
