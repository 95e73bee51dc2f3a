// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// MayBeRefused reports whether a requested hibernation may be refused because of blocking findings of the survey. A
// hibernation that has begun is not refused, nor is one that cancels a resume: the cluster would be left partly
// stopped.
func MayBeRefused(o Observed) bool {
	return o.Options.RequiresPossible && o.needsNodeRecord() && !o.hasNotResumed()
}

// isHibernationRefused reports whether a requested hibernation is refused or waits for the first survey. A reachable
// cluster is surveyed first. An unreachable cluster cannot be surveyed, so its last survey decides.
func (o Observed) isHibernationRefused() bool {
	return MayBeRefused(o) && (o.Obstacles != "" || o.awaitsSurvey())
}

// awaitsSurvey reports whether a hibernation that may be refused waits for the first survey.
func (o Observed) awaitsSurvey() bool { return !o.IsSurveyed && o.API == Reachable }

// hibernationRefused leaves the cluster unchanged.
// Invariant: it writes no record, and machines are stopped only with a record, so a refused hibernation stops nothing
// (TestEveryStateConverges).
func hibernationRefused(o Observed) Plan {
	message, after := "The hibernation is refused, because it requires the condition HibernationPossible, which is False: "+o.Obstacles, userRetryInterval
	if o.Obstacles == "" {
		message, after = "The hibernation waits for a survey of the cluster, because it requires the condition HibernationPossible", firstSyncInterval
	}
	ready := decision.Unknown(hivev1.RefusedHibernationReason, "The hibernation does not begin, and the cluster is left as it is")
	switch {
	case o.API == Unreachable:
		ready = decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage)
	case o.API == Reachable && o.anyMachineIs(actuator.Running) && o.partialReason() == "":
		ready = decision.True(hivev1.RunningHibernationReason, "The cluster runs and its API server answers; its hibernation does not begin")
	}
	return Plan{
		Hibernating:  decision.False(hivev1.RefusedHibernationReason, message),
		Ready:        ready,
		Unreachable:  o.probedCondition(),
		Record:       o.Record,
		RequeueAfter: after,
	}
}
