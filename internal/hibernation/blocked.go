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
	return unknownPlan(o, hivev1.PausedReason, "An annotation pauses power management; remove it to go on")
}

func clusterNotInstalled(o Observed) Plan {
	return unknownPlan(o, hivev1.NotInstalledReason, "spec.installed is not true; nothing is stopped or started before")
}

func invalidSpec(o Observed) Plan { return unknownPlan(o, hivev1.InvalidSpecReason, o.Invalid) }

func noMachinesFound(o Observed) Plan {
	p := unknownPlan(o, hivev1.NoMachinesFoundReason,
		"Expected machines tagged for spec.clusterMetadata.infraID, found none; check infraID, region and the account of the credentials")
	p.RequeueAfter = retryInterval
	return p
}

func observationFailed(o Observed) Plan {
	p := unknownPlan(o, reasonForClass(o.ObservationError.Class), o.ObservationError.Message)
	p.RequeueAfter = retryIntervalFor(o.ObservationError.Class)
	return p
}

func hibernationUnsupported(o Observed) Plan {
	return Plan{
		Hibernating: decision.False(hivev1.UnsupportedHibernationReason, cmp.Or(o.NoActuator, o.Incompatible)),
		Ready:       decision.Unknown(hivev1.UnsupportedHibernationReason, "The cluster cannot be hibernated and is left as it is"),
		Unreachable: notProbedCondition(),
		Record:      o.Record,
	}
}

func unknownPlan(o Observed, reason, message string) Plan {
	p := Plan{
		Hibernating: decision.Unknown(reason, message),
		Ready:       decision.Unknown(reason, message),
		Unreachable: notProbedCondition(),
		Record:      o.Record,
	}
	if o.isHibernationOpen() {
		// Whatever else is unknown, other controllers must not dial a cluster that hibernates.
		p.Unreachable = clusterAsleepCondition()
	}
	return p
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
