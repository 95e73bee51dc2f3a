// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// PowerReport is the part of the status for which Torpor and Hive use different reasons.
type PowerReport struct {
	Hibernating, Ready decision.Condition
	// PowerState is status.powerState.
	PowerState string
}

// ReportPower returns the report with Torpor's reasons.
func ReportPower(p Plan) PowerReport {
	return PowerReport{p.Hibernating, p.Ready, DisplayedPowerState(p.Hibernating)}
}

// ReportPowerAsHive returns the report with Hive's reasons and statuses, for Hive's ClusterPools and other tools that
// read them. A pool deletes a cluster if its power state is not Running, and its Hibernating condition has the reason
// ResumingOrRunning and a status that has not changed for the pool's resumeTimeout. A resume changes that status only
// after a complete hibernation, so any other resume keeps Torpor's reason Resuming.
func ReportPowerAsHive(p Plan) PowerReport {
	r := ReportPower(p)
	switch p.Hibernating.Reason {
	case hivev1.StoppingHibernationReason:
		r.Hibernating.Status = metav1.ConditionFalse
		if reason := p.Ready.Reason; reason == hivev1.FailedToStopReason || reason == hivev1.WaitingForMachinesToStopReason {
			r.Hibernating.Reason = reason
		}
		r.Ready.Reason, r.PowerState = hivev1.StoppingOrHibernatingReason, r.Hibernating.Reason
	case hivev1.HibernatingHibernationReason:
		r.Ready.Reason = hivev1.StoppingOrHibernatingReason
	case hivev1.ResumingHibernationReason:
		r.Hibernating.Status, r.PowerState = metav1.ConditionFalse, p.Ready.Reason
		if p.Record != nil && p.Record.AsleepAt != nil {
			r.Hibernating.Reason = hivev1.ResumingOrRunningHibernationReason
		}
	case hivev1.RunningHibernationReason:
		r.Hibernating.Reason = hivev1.ResumingOrRunningHibernationReason
	case hivev1.UnsupportedHibernationReason, hivev1.RefusedHibernationReason:
		if r.Ready.Status == metav1.ConditionTrue { // A ClusterPool assigns only clusters with this power state.
			r.PowerState = hivev1.RunningHibernationReason
		}
	}
	return r
}

// ReadReportedConditions returns the conditions of the last report with Torpor's reasons, even if they were reported
// with Hive's reasons. Transitions are found by comparing these conditions with the plan.
func ReadReportedConditions(reported []metav1.Condition, powerState string, p Plan) []metav1.Condition {
	conditions := slices.Clone(reported)
	hibernating, ready := meta.FindStatusCondition(conditions, hivev1.ClusterHibernatingCondition), meta.FindStatusCondition(conditions, hivev1.ClusterReadyCondition)
	if hibernating == nil || ready == nil {
		return conditions
	}
	stopReasons := []string{hivev1.StoppingHibernationReason, hivev1.FailedToStopReason, hivev1.WaitingForMachinesToStopReason}
	reason, isFalse := hibernating.Reason, hibernating.Status == metav1.ConditionFalse
	switch {
	case isFalse && slices.Contains(stopReasons, reason):
		hibernating.Status, hibernating.Reason = metav1.ConditionTrue, hivev1.StoppingHibernationReason
	case isFalse && reason == hivev1.ResumingHibernationReason:
		hibernating.Status = metav1.ConditionTrue
	case reason == hivev1.ResumingOrRunningHibernationReason && powerState == hivev1.RunningHibernationReason:
		hibernating.Reason = hivev1.RunningHibernationReason
	case reason == hivev1.ResumingOrRunningHibernationReason:
		hibernating.Status, hibernating.Reason = metav1.ConditionTrue, hivev1.ResumingHibernationReason
	}
	if ready.Reason != hivev1.StoppingOrHibernatingReason {
		return conditions
	}
	switch {
	case ready.Message == p.Ready.Message: // The report has not changed, and therefore neither has its reason.
		ready.Reason = p.Ready.Reason
	case reason == hivev1.HibernatingHibernationReason, reason == hivev1.FailedToStopReason, reason == hivev1.WaitingForMachinesToStopReason:
		ready.Reason = reason
	default:
		ready.Reason = hivev1.StoppingMachinesReason
	}
	return conditions
}
