// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// stopAction is the action in events about stops.
const stopAction = "Stop"

// report writes the observed state of an app to its status.
func (c Controller) report(obj *korifiv1alpha1.CFApp, seen *observation, plan app.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	before := obj.Status.Stops
	r := app.UpdateStatus(seen.Observed)
	if plan.EndsStop && refused != nil {
		r.Ready.Message += "; the API server refused the start, which is retried: " + refused.Message
	}
	reconcile.SetConditions(&obj.Status.Conditions, map[string]decision.Condition{
		korifiv1alpha1.ReadyCondition: r.Ready, korifiv1alpha1.DrainingCondition: r.Draining,
	}, obj.Generation, c.Clock)
	out := reconcile.FollowUp{
		Rule: r.Ready.Reason, IsTransient: r.IsTransient, RequeueAfter: c.untilStopEnds(seen), Events: stoprecord.Events(before, seen.Stops, torporv1alpha1.UntilAnnotation, stopAction),
		Changes: stoprecord.Changes("app", before, seen.Stops), Request: stoprecord.RequestOf(seen.Stops, seen.Scheduled),
	}
	// The event about a new revision follows from a difference to the stored status, so later passes repeat it until
	// the status is saved. Other events occur in one pass only.
	out.EventsRecur = len(out.Events) == 0 && len(seen.created) == 0
	if r.Began != nil {
		out.Request = decision.Request{Requester: r.Began.By}
		out.Events = append(out.Events, decision.Event{Reason: revisionBegan, Action: string(r.Began.Cause), Note: app.RestartNote(r.Began, r.Unseen)})
		out.AfterSave = func() { c.Metrics.countRestarts(r.Began.Cause, r.Unseen+1) }
	}
	for _, p := range seen.created {
		out.Events = append(out.Events, decision.Event{Reason: processCreated, Action: "Create", Note: "created the process " + p.Name + " of type " + p.Spec.ProcessType})
	}
	return out
}

// untilStopEnds returns the time until the end of an app's stop, when the app must be reconciled again. It returns 0 if
// there is no end time.
func (c Controller) untilStopEnds(seen *observation) time.Duration {
	newest := seen.Stops.RequestedStop()
	switch {
	case newest != nil && newest.Until != nil:
		return reconcile.DelayUntil(newest.Until.Time, c.Clock.Now())
	case seen.Scheduled != nil && seen.Scheduled.ExpiresAt != nil:
		return reconcile.DelayUntil(seen.Scheduled.ExpiresAt.Time, c.Clock.Now())
	default:
		return 0
	}
}
