// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// immediately requeues through the queue, so one cluster does not occupy a worker.
	immediately = time.Millisecond
	// minMachineInterval and maxCloudInterval limit the interval of polling machines that change. minCloudInterval is
	// the shortest interval of other waits for the cloud.
	minCloudInterval   = 2 * time.Second
	minMachineInterval = time.Second
	maxCloudInterval   = 15 * time.Second
	// cloudIntervalShare is the ratio of the elapsed wait to the next interval.
	cloudIntervalShare = 20
	// minProbeInterval is the interval of probing the API server of a resuming cluster. Probes cost no cloud
	// requests.
	minProbeInterval = 500 * time.Millisecond
	// frequentProbeWindow is how long a resuming cluster is probed at minProbeInterval.
	frequentProbeWindow = 5 * time.Minute
	// firstSyncWindow is how long after the installation a hibernation may wait for the cluster's SyncSets, as in
	// Hive. firstSyncInterval is the interval of checking whether they were applied.
	firstSyncWindow, firstSyncInterval = 10 * time.Minute, 5 * time.Second
	// nodeRecordWindow is how long a stop waits for an unreachable API server.
	nodeRecordWindow = 30 * time.Second
	// lateAfter is the wait after which messages list the pending machines.
	lateAfter = 2 * time.Minute
	// aftercareWindow is how long certificate requests are evaluated after the cluster is ready again.
	aftercareWindow = 10 * time.Minute
	// minAftercareInterval, maxAftercareInterval and aftercareShare define how often a resumed cluster is probed.
	minAftercareInterval = 5 * time.Second
	maxAftercareInterval = time.Minute
	aftercareShare       = 4
	// machineWaitInterval is the longest time between two passes that wait for machines, so late machines are
	// reported.
	machineWaitInterval = 30 * time.Second
	// partialResumeAfter is the time after which a resuming cluster counts as running although machines and nodes are
	// missing.
	partialResumeAfter = 10 * time.Minute
	// stalledAfter is the time after which an unfinished hibernation or resume counts as stalled.
	stalledAfter = 15 * time.Minute
	// closeLookWindow is how long a newly stopped cluster is polled every closeLookInterval, because a cloud may show
	// the effect of an earlier order late.
	closeLookWindow, closeLookInterval = 90 * time.Second, 30 * time.Second
	// refusalShare is the ratio of the elapsed wait to the back-off of refused machines. maxCapacityRest limits the
	// back-off if the cloud had no capacity.
	refusalShare    = 4
	maxCapacityRest = 2 * time.Minute
	// driftInterval is the interval of comparing a settled cluster with the cloud.
	driftInterval = 10 * time.Minute
	// asleepInterval is the interval between passes of a hibernating cluster. The account's poller observes the
	// machines in between, and triggers a pass when a machine is no longer off.
	asleepInterval = time.Hour
	// retryInterval is the interval after errors that may be temporary.
	retryInterval = time.Minute
	// userRetryInterval is the interval after errors that only a user can fix.
	userRetryInterval = 5 * time.Minute
)

// cloudInterval returns the interval of polls, which grows with the wait. A change is noticed late by at most a
// twentieth of the wait or a second, whichever is longer, and long waits stay cheap.
func cloudInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/cloudIntervalShare, minMachineInterval), maxCloudInterval)
}

// aftercareInterval returns the interval of probes after a resume. It is short at first, when kubelets request serving
// certificates and a machine may still stop late.
func aftercareInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/aftercareShare, minAftercareInterval), maxAftercareInterval)
}

func probeInterval(since, at time.Time) time.Duration {
	if at.Sub(since) < frequentProbeWindow {
		return minProbeInterval
	}
	return maxCloudInterval
}

// Retry defines how often a call to a cloud is repeated after an error.
type Retry struct {
	// First is the pause after a failed listing, and the first pause for refused machines.
	First time.Duration
	// Longest limits the pauses for refused machines, which grow to a quarter of the elapsed time. It is zero if the
	// pauses do not grow.
	Longest time.Duration
}

// RetryOf returns how often a call is repeated after an error of a class. The pauses after a lasting refusal of
// machines grow, because a state that has lasted for hours may last longer.
func RetryOf(c actuator.ErrorClass) Retry {
	switch c {
	case actuator.WrongState:
		return Retry{First: minCloudInterval, Longest: driftInterval}
	case actuator.NoCapacity:
		return Retry{First: maxCloudInterval, Longest: maxCapacityRest}
	case actuator.Throttled, actuator.Unreachable, actuator.CredentialsMissing:
		return Retry{First: maxCloudInterval} // A missing Secret causes no cloud requests.
	case actuator.PermissionDenied:
		return Retry{First: userRetryInterval}
	case actuator.CredentialsInvalid:
		return Retry{First: retryInterval}
	case actuator.NotFound, actuator.Other:
		return Retry{First: retryInterval, Longest: driftInterval}
	default:
		return Retry{First: retryInterval}
	}
}

// refusalRest returns the back-off for refused machines of a stop or a start that began at a given time.
func refusalRest(c actuator.ErrorClass, since, at time.Time) time.Duration {
	retry := RetryOf(c)
	return max(retry.First, min(at.Sub(since)/refusalShare, retry.Longest))
}
