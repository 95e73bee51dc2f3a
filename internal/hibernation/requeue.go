// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// immediately looks again through the queue, so that one cluster does not hold a worker.
	immediately = time.Millisecond
	// minCloudInterval and maxCloudInterval bound the interval of looking at the cloud, and minMachineInterval while machines change.
	minCloudInterval   = 2 * time.Second
	minMachineInterval = time.Second
	maxCloudInterval   = 15 * time.Second
	// cloudIntervalShare is the part of the wait so far that the next interval takes.
	cloudIntervalShare = 20
	// minProbeInterval is the interval of looking at a resuming cluster's own API, which costs the cloud nothing.
	minProbeInterval = 500 * time.Millisecond
	// frequentProbeWindow is how long a resuming cluster is looked at that often.
	frequentProbeWindow = 5 * time.Minute
	// firstSyncWindow is how long after its installation a cluster's hibernation may wait for its SyncSets, as in Hive, and
	// firstSyncInterval how often it is looked whether they have been applied.
	firstSyncWindow, firstSyncInterval = 10 * time.Minute, 5 * time.Second
	// nodeRecordWindow is how long after the request a stop waits for an API server that does not answer.
	nodeRecordWindow = 30 * time.Second
	// lateAfter is when machines that hang are named.
	lateAfter = 2 * time.Minute
	// aftercareWindow is how long certificate requests are judged after the cluster is ready again.
	aftercareWindow = 10 * time.Minute
	// minAftercareInterval, maxAftercareInterval and aftercareShare are the interval of that.
	minAftercareInterval = 5 * time.Second
	maxAftercareInterval = time.Minute
	aftercareShare       = 4
	// machineWaitInterval is how often the pass runs at least that waits for machines: late ones are named.
	machineWaitInterval = 30 * time.Second
	// partialResumeAfter is when a resuming cluster runs without the machines and nodes that are still missing.
	partialResumeAfter = 10 * time.Minute
	// stalledAfter is when a hibernation or a resume that is not over counts as stalled.
	stalledAfter = 15 * time.Minute
	// closeLookWindow is how long a cluster that has just fallen asleep is looked at closely, every closeLookInterval: a cloud may show
	// late what was asked of it before.
	closeLookWindow, closeLookInterval = 90 * time.Second, 30 * time.Second
	// refusalShare is the part of a wait so far, for which machines rest that were refused, up to maxCapacityRest if there was no room.
	refusalShare    = 4
	maxCapacityRest = 2 * time.Minute
	// driftInterval is how often a settled cluster is compared with its cloud.
	driftInterval = 10 * time.Minute
	// asleepInterval is how often the pass of a cluster runs that hibernates. Its account looks at it in between, and has the pass run
	// once a machine is not off any more.
	asleepInterval = time.Hour
	// retryInterval follows errors that may pass.
	retryInterval = time.Minute
	// userRetryInterval follows errors that only a user can mend.
	userRetryInterval = 5 * time.Minute
)

// cloudInterval grows with the wait, so that a change is noticed late by at most a twentieth of it and long waits stay cheap.
func cloudInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/cloudIntervalShare, minMachineInterval), maxCloudInterval)
}

// aftercareInterval is short at first, when kubelets ask for serving certificates and a machine that stops late would show.
func aftercareInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/aftercareShare, minAftercareInterval), maxAftercareInterval)
}

func probeInterval(since, at time.Time) time.Duration {
	if at.Sub(since) < frequentProbeWindow {
		return minProbeInterval
	}
	return maxCloudInterval
}

func retryIntervalFor(c actuator.ErrorClass) time.Duration {
	switch c {
	case actuator.WrongState:
		return minCloudInterval
	case actuator.Throttled, actuator.Unreachable, actuator.NoCapacity, actuator.CredentialsMissing:
		return maxCloudInterval // A Secret that is missing costs the cloud nothing.
	case actuator.PermissionDenied:
		return userRetryInterval
	case actuator.CredentialsInvalid, actuator.NotFound, actuator.Other:
		return retryInterval
	default:
		return retryInterval
	}
}

// refusalRest is how long machines rest that the cloud has refused since a time: a lasting refusal is tried less and less.
func refusalRest(c actuator.ErrorClass, since, at time.Time) time.Duration {
	rest, share := retryIntervalFor(c), at.Sub(since)/refusalShare
	switch c {
	case actuator.NoCapacity:
		return max(rest, min(share, maxCapacityRest))
	case actuator.Other, actuator.NotFound:
		return max(rest, min(share, driftInterval))
	case actuator.CredentialsMissing, actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable, actuator.Throttled, actuator.WrongState:
		return rest
	default:
		return rest
	}
}
