// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// immediately requeues through the queue, so one cluster does not occupy a worker.
	immediately = time.Millisecond
	// minCloudInterval and maxCloudInterval bound the interval of polling the cloud. minMachineInterval is the
	// lower bound while machines change.
	minCloudInterval   = 2 * time.Second
	minMachineInterval = time.Second
	maxCloudInterval   = 15 * time.Second
	// cloudIntervalShare is the fraction of the wait so far that the next interval takes.
	cloudIntervalShare = 20
	// minProbeInterval is the interval of probing the API server of a resuming cluster. Probes cost no cloud
	// requests.
	minProbeInterval = 500 * time.Millisecond
	// frequentProbeWindow is how long a resuming cluster is probed at that interval.
	frequentProbeWindow = 5 * time.Minute
	// firstSyncWindow is how long after the installation a hibernation may wait for the cluster's SyncSets, as
	// in Hive. firstSyncInterval is the interval of checking whether they have been applied.
	firstSyncWindow, firstSyncInterval = 10 * time.Minute, 5 * time.Second
	// nodeRecordWindow is how long after the request a stop waits for an API server that does not answer.
	nodeRecordWindow = 30 * time.Second
	// lateAfter is the wait after which pending machines are named.
	lateAfter = 2 * time.Minute
	// aftercareWindow is how long certificate requests are judged after the cluster is ready again.
	aftercareWindow = 10 * time.Minute
	// minAftercareInterval, maxAftercareInterval and aftercareShare define how often a resumed cluster is probed.
	minAftercareInterval = 5 * time.Second
	maxAftercareInterval = time.Minute
	aftercareShare       = 4
	// machineWaitInterval is the longest time between two passes that wait for machines, so late ones are
	// named.
	machineWaitInterval = 30 * time.Second
	// partialResumeAfter is the time after which a resuming cluster counts as running without the machines and
	// nodes that are still missing.
	partialResumeAfter = 10 * time.Minute
	// stalledAfter is the time after which an unfinished hibernation or resume counts as stalled.
	stalledAfter = 15 * time.Minute
	// closeLookWindow is how long a cluster that has just stopped is polled every closeLookInterval, because a
	// cloud may show the effect of an earlier order late.
	closeLookWindow, closeLookInterval = 90 * time.Second, 30 * time.Second
	// refusalShare is the fraction of the wait so far for which refused machines rest. maxCapacityRest bounds
	// the rest if the cloud had no capacity.
	refusalShare    = 4
	maxCapacityRest = 2 * time.Minute
	// driftInterval is the interval of comparing a settled cluster with its cloud.
	driftInterval = 10 * time.Minute
	// asleepInterval is the interval between passes of a hibernating cluster. Its account polls the machines in
	// between, and triggers a pass when one is no longer off.
	asleepInterval = time.Hour
	// retryInterval follows errors that may be temporary.
	retryInterval = time.Minute
	// userRetryInterval follows errors that only a user can fix.
	userRetryInterval = 5 * time.Minute
)

// cloudInterval grows with the wait: a change is noticed late by at most a twentieth of it, and long waits stay
// cheap.
func cloudInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/cloudIntervalShare, minMachineInterval), maxCloudInterval)
}

// aftercareInterval is short at first, when kubelets request serving certificates and a late stop of a machine
// would show.
func aftercareInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/aftercareShare, minAftercareInterval), maxAftercareInterval)
}

func probeInterval(since, at time.Time) time.Duration {
	if at.Sub(since) < frequentProbeWindow {
		return minProbeInterval
	}
	return maxCloudInterval
}

// Retry is how often a cloud is asked again after an error.
type Retry struct {
	// First is the pause after a failed listing, and the first pause of refused machines.
	First time.Duration
	// Longest bounds the pauses of refused machines, which grow to a quarter of the time so far. It is zero if they do
	// not grow.
	Longest time.Duration
}

// RetryOf returns how often a cloud is asked again after an error of a class. A lasting refusal of machines is repeated
// ever less often, because a state that has lasted for hours may last longer.
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

// refusalRest is the back-off for machines that the cloud refuses since a given time.
func refusalRest(c actuator.ErrorClass, since, at time.Time) time.Duration {
	retry := RetryOf(c)
	return max(retry.First, min(at.Sub(since)/refusalShare, retry.Longest))
}
