// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// The plans in this file have no action.

func clusterDeleted(o Observed) Plan {
	return unknownPlan(o, hivev1.DeletedReason, "The ClusterDeployment is being deleted; its machines are left as they are")
}

func powerPaused(o Observed) Plan {
	p := unknownPlan(o, hivev1.PausedReason, "An annotation pauses power management; remove the annotation to continue")
	p.RequeueAfter = driftInterval
	return p
}

func clusterNotInstalled(o Observed) Plan {
	return unknownPlan(o, hivev1.NotInstalledReason, "spec.installed is not true; no machine is stopped or started before spec.installed is true")
}

func invalidSpec(o Observed) Plan { return unknownPlan(o, hivev1.InvalidSpecReason, o.Invalid) }

// infraDisabled reports only whether the API server responds. The owner of the machines switches them, so they may be
// on or off, whatever the last hibernation's record contains.
func infraDisabled(o Observed) Plan {
	p := Plan{
		Hibernating:  decision.False(hivev1.RunningHibernationReason, o.NoActuator),
		Unreachable:  notProbedCondition(),
		Record:       o.Record,
		RequeueAfter: driftInterval,
	}
	if o.shouldHibernate() {
		p.Hibernating.Reason = hivev1.UnsupportedHibernationReason
	}
	switch {
	case o.Invalid != "":
		p.Ready = decision.Unknown(hivev1.InvalidSpecReason, o.Invalid)
	case o.API == Reachable:
		p.Ready, p.Unreachable = decision.True(hivev1.RunningHibernationReason, "The API server answers"), reachableCondition()
	case o.API == Unreachable:
		p.Ready = decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage)
		p.Unreachable, p.ProbeInterval = decision.True(hivev1.ErrorConnectingToClusterReason, o.APIMessage), retryInterval
	default:
		p.Ready = decision.Unknown(hivev1.NotProbedReason, notProbedCondition().Message)
	}
	return p
}

func noMachinesFound(o Observed) Plan {
	p := unknownPlan(o, hivev1.NoMachinesFoundReason,
		"Expected machines of the cluster in spec.clusterMetadata, found none; check infraID or resource group, region and the account of the credentials")
	p.RequeueAfter = retryInterval
	return p
}

func observationFailed(o Observed) Plan {
	p := unknownPlan(o, reasonForClass(o.ObservationError.Class), o.ObservationError.Message)
	// After a failed listing, polls with a short interval are not needed: Torpor changes no machine until a listing
	// succeeds.
	p.RequeueAfter = max(RetryOf(o.ObservationError.Class).First, maxCloudInterval)
	return p
}

func hibernationUnsupported(o Observed) Plan {
	ready := decision.Unknown(hivev1.UnsupportedHibernationReason, "The cluster cannot be hibernated and is left as it is")
	switch {
	case o.hasNotResumed(): // Ready stays Unknown until the resume has finished.
	case o.API == Reachable:
		ready = decision.True(hivev1.RunningHibernationReason, "The API server answers; the cluster cannot be hibernated and is left as it is")
	case o.API == Unreachable:
		ready = decision.False(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage)
	}
	return Plan{
		Hibernating:  decision.False(hivev1.UnsupportedHibernationReason, cmp.Or(o.NoActuator, o.Incompatible, o.groupReason())),
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

// probedCondition returns the Unreachable condition, even if the state of the machines is unknown.
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
	return decision.Unknown(hivev1.NotProbedReason, "The cluster's API server is not probed")
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
	default: // An actuator outside this repository may return its own classes.
		return hivev1.CloudErrorReason
	}
}
