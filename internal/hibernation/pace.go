// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// now: look again at once, through the queue.
	now = time.Millisecond
	// minPace and maxPace bound the pace of looking at the cloud.
	minPace = 2 * time.Second
	maxPace = 15 * time.Second
	// paceShare: a wait of this many seconds costs at most one more.
	paceShare = 10
	// fastInterval is the pace of looking at a waking cluster's own API, which costs the cloud nothing.
	fastInterval = 500 * time.Millisecond
	// patience is how long a waking cluster is looked at that often.
	patience = 5 * time.Minute
	// readPatience is how long after the request a stop waits for an API server that does not answer.
	readPatience = 30 * time.Second
	// lateAfter is when machines that hang are named.
	lateAfter = 2 * time.Minute
	// aftercareWindow is how long certificate requests are judged after the cluster is ready again.
	aftercareWindow = 10 * time.Minute
	// minCare, maxCare and careShare are the pace of that.
	minCare   = 5 * time.Second
	maxCare   = time.Minute
	careShare = 4
	// driftInterval is how often a settled cluster is compared with its cloud.
	driftInterval = 10 * time.Minute
	// retryInterval is the pace of errors that may pass.
	retryInterval = time.Minute
	// userInterval is the pace of errors that only a user can mend.
	userInterval = 5 * time.Minute
	// fewNames is how many names a message holds.
	fewNames = 5
)

// pace grows with the wait, so that a look is late by at most a tenth of it and long waits stay cheap.
func pace(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/paceShare, minPace), maxPace)
}

// carePace is close at first, when kubelets ask for serving certificates and a late stop would show.
func carePace(since, at time.Time) time.Duration {
	return min(max(at.Sub(since)/careShare, minCare), maxCare)
}

func fastPace(since, at time.Time) time.Duration {
	if at.Sub(since) < patience {
		return fastInterval
	}
	return maxPace
}

// few joins sorted names; of many it shows the first and says how many there are.
func few(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) <= fewNames {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(sorted[:fewNames], ", "), len(sorted)-fewNames)
}
