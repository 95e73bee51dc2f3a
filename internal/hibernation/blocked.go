// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The plans of a cluster of which nothing can be said, and of effects that were refused.

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
	p.After = retryInterval
	return p
}

func observationFailed(o Observed) Plan {
	p := unknownPlan(o, reasonForClass(o.ObservationError.Class), o.ObservationError.Message)
	p.After = retryIntervalFor(o.ObservationError.Class)
	return p
}

func hibernationUnsupported(o Observed) Plan {
	why := o.NoActuator
	if why == "" {
		why = o.Incompatible
	}
	return Plan{
		Hibernating: isFalse(hivev1.UnsupportedHibernationReason, why),
		Ready:       unknown(hivev1.UnsupportedHibernationReason, "The cluster cannot be hibernated and is left as it is"),
		Unreachable: unknown(hivev1.NotProbedReason, "The cluster is not dialled"),
		Record:      o.Record,
	}
}

// unknownPlan keeps others from dialling a cluster that was put to sleep, whatever else is unknown of it.
func unknownPlan(o Observed, reason, message string) Plan {
	p := Plan{
		Hibernating: unknown(reason, message),
		Ready:       unknown(reason, message),
		Unreachable: unknown(hivev1.NotProbedReason, "The cluster is not dialled"),
		Record:      o.Record,
	}
	if o.isHibernationRecorded() {
		p.Unreachable = isTrue(hivev1.ClusterAsleepReason, "The cluster is put to sleep and is not dialled")
	}
	return p
}

// Failed is the plan after its effect was refused: it says so, and looks again when that makes sense.
// What went well of the plan, such as the record, stays.
func (p Plan) Failed(t ObservationError) Plan {
	switch p.Do.(type) {
	case StopMachines:
		p.Ready = isFalse(hivev1.FailedToStopReason, t.Message)
	case StartMachines:
		p.Ready = isFalse(hivev1.FailedToStartMachinesReason, t.Message)
	case ApproveRequests:
		p.Ready = isFalse(hivev1.FailedToApproveReason, t.Message)
	case NoAction:
	}
	p.After = retryIntervalFor(t.Class)
	return p
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
	default:
		return hivev1.CloudErrorReason
	}
}

// retryIntervalFor: what only a user can mend is looked at seldom, since a change of the Secret wakes the cluster's
// reconciler at once; the rest as soon as it can have passed.
func retryIntervalFor(c actuator.ErrorClass) time.Duration {
	switch c {
	case actuator.WrongState:
		return minCloudInterval
	case actuator.Throttled, actuator.Unreachable, actuator.NoCapacity:
		return maxCloudInterval
	case actuator.CredentialsMissing, actuator.CredentialsInvalid, actuator.PermissionDenied:
		return userRetryInterval
	case actuator.NotFound, actuator.Other:
		return retryInterval
	default:
		return retryInterval
	}
}

// machineNames turns machine ids into what people know them by.
func (o Observed) machineNames(ids []string) string {
	known := map[string]string{}
	for _, m := range o.Machines {
		known[m.ID] = m.ID
		if m.Name != "" {
			known[m.ID] = fmt.Sprintf("%s (%s)", m.Name, m.ID)
		}
	}
	var names []string
	for _, id := range ids {
		names = append(names, known[id])
	}
	return joinNames(names)
}
