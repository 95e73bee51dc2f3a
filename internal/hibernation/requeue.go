// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// immediately: look again at once, through the queue.
	immediately = time.Millisecond
	// minCloudInterval and maxPace bound the pace of looking at the cloud.
	minCloudInterval = 2 * time.Second
	maxCloudInterval = 15 * time.Second
	// cloudIntervalShare: a wait of this many seconds costs at most one more.
	cloudIntervalShare = 10
	// minProbeInterval is the pace of looking at a waking cluster's own API, which costs the cloud nothing.
	minProbeInterval = 500 * time.Millisecond
	// frequentProbeWindow is how long a waking cluster is looked at that often.
	frequentProbeWindow = 5 * time.Minute
	// nodeRecordWindow is how long after the request a stop waits for an API server that does not answer.
	nodeRecordWindow = 30 * time.Second
	// lateAfter is when machines that hang are named.
	lateAfter = 2 * time.Minute
	// aftercareWindow is how long certificate requests are judged after the cluster is ready again.
	aftercareWindow = 10 * time.Minute
	// minAftercareInterval, maxCare and careShare are the pace of that.
	minAftercareInterval = 5 * time.Second
	maxAftercareInterval = time.Minute
	aftercareShare       = 4
	// driftInterval is how often a settled cluster is compared with its cloud.
	driftInterval = 10 * time.Minute
	// retryInterval is the pace of errors that may pass.
	retryInterval = time.Minute
	// userRetryInterval is the pace of errors that only a user can mend.
	userRetryInterval = 5 * time.Minute
	// maxJoinedNames is how many names a message holds.
	maxJoinedNames = 5
)

// cloudInterval grows with the wait, so that a look is late by at most a tenth of it and long waits stay cheap.
func cloudInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/cloudIntervalShare, minCloudInterval), maxCloudInterval)
}

// aftercareInterval is close at first, when kubelets ask for serving certificates and a late stop would show.
func aftercareInterval(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/aftercareShare, minAftercareInterval), maxAftercareInterval)
}

func probeInterval(since, at time.Time) time.Duration {
	if at.Sub(since) < frequentProbeWindow {
		return minProbeInterval
	}
	return maxCloudInterval
}

// joinNames joins sorted names; of many it shows the first and says how many there are.
func joinNames(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) <= maxJoinedNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:maxJoinedNames], ", "), len(sorted)-maxJoinedNames)
}
