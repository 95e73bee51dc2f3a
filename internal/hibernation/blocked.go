// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The plans of a cluster whose power is not managed now, or of which nothing is known.

func clusterDeleted(o Observed) Plan {
	return unknownPlan(o, hivev1.DeletedReason, "The ClusterDeployment is being deleted; its machines are left as they are")
}

func powerPaused(o Observed) Plan {
	p := unknownPlan(o, hivev1.PausedReason, "An annotation pauses power management; remove it to go on")
	p.RequeueAfter = driftInterval
	return p
}

func clusterNotInstalled(o Observed) Plan {
	return unknownPlan(o, hivev1.NotInstalledReason, "spec.installed is not true; nothing is stopped or started before")
}

func invalidSpec(o Observed) Plan { return unknownPlan(o, hivev1.InvalidSpecReason, o.Invalid) }

func noMachinesFound(o Observed) Plan {
	p := unknownPlan(o, hivev1.NoMachinesFoundReason,
		"Expected machines of the cluster that spec.clusterMetadata names, found none; check infraID or resource group, region and the account of the credentials")
	p.RequeueAfter = retryInterval
	return p
}

func observationFailed(o Observed) Plan {
	p := unknownPlan(o, reasonForClass(o.ObservationError.Class), o.ObservationError.Message)
	p.RequeueAfter = retryIntervalFor(o.ObservationError.Class)
	return p
}

func hibernationUnsupported(o Observed) Plan {
	ready := decision.Unknown(hivev1.UnsupportedHibernationReason, "The cluster cannot be hibernated and is left as it is")
	switch {
	case o.hasNotResumed(): // It hibernated, and nobody looks after it.
	case o.API == Reachable:
		ready = decision.True(hivev1.RunningHibernationReason, "The cluster answers; it cannot be hibernated and is left as it is")
	case o.API == Unreachable:
		ready = decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage)
	}
	return Plan{
		Hibernating:  decision.False(hivev1.UnsupportedHibernationReason, cmp.Or(o.NoActuator, o.Incompatible)),
		Ready:        ready,
		Unreachable:  o.probedCondition(),
		Record:       o.Record,
		RequeueAfter: driftInterval,
	}
}

func unknownPlan(o Observed, reason, message string) Plan {
	return Plan{
		Hibernating: decision.Unknown(reason, message),
		Ready:       decision.Unknown(reason, message),
		Unreachable: o.probedCondition(),
		Record:      o.Record,
	}
}

// probedCondition is about nothing but whether the API server answers, whatever else is unknown.
func (o Observed) probedCondition() decision.Condition {
	switch {
	case o.API == Reachable:
		return reachableCondition()
	case o.API == Unreachable:
		return decision.True(hivev1.ErrorConnectingToClusterReason, o.APIMessage)
	case o.isHibernationOpen():
		return clusterAsleepCondition()
	default:
		return notProbedCondition()
	}
}

func notProbedCondition() decision.Condition {
	return decision.Unknown(hivev1.NotProbedReason, "The cluster is not dialled")
}

func reasonForClass(c actuator.ErrorClass) string {
	switch c {
	case actuator.CredentialsMissing:
		return hivev1.CredentialsMissingReason
	case actuator.CredentialsInvalid:
		return hivev1.CredentialsInvalidReason
	case actuator.PermissionDenied:
		return hivev1.PermissionDeniedReason
	case actuator.Unreachable:
		return hivev1.CloudUnreachableReason
	case actuator.Throttled:
		return hivev1.CloudThrottledReason
	case actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other:
		return hivev1.CloudErrorReason
	default: // An actuator of another repository may have classes of its own.
		return hivev1.CloudErrorReason
	}
}
