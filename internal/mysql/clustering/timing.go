// SPDX-License-Identifier: Apache-2.0

package clustering

import "time"

const (
	// primaryDownAfter is for how long, and primaryDownMisses at how many looks, a primary with a Pod that is ready must not
	// answer before it counts as down.
	primaryDownAfter  = 500 * time.Millisecond
	primaryDownMisses = 2
	// clusterStartTimeout is how long a cluster that has just started waits for the primary it had.
	clusterStartTimeout = 30 * time.Second
	// switchoverTimeout is how long a primary may be read-only for a switchover, and switchoverRetryAfter the time between
	// two attempts.
	switchoverTimeout    = 10 * time.Second
	switchoverRetryAfter = 30 * time.Second
	// maxSwitchoverLag is how far behind a replica may be for a switchover to begin.
	maxSwitchoverLag = 5 * time.Second
	// killClientsAfter is for how long clients may keep a server from becoming read-only.
	killClientsAfter = 2 * time.Second
	// stopTimeout is how long a stop may take to be reached.
	stopTimeout = 15 * time.Second
	// aheadGracePeriod keeps transactions in flight from being taken for lost ones.
	aheadGracePeriod = time.Second
	// actionBackoff is how long an instance is left alone after an action that did not help.
	actionBackoff = 2 * time.Second
	// endlessTimeout is a wait for replicas that no commit outlives.
	endlessTimeout = 24 * time.Hour
)

// When to look again.
const (
	// immediately is through the queue, so that other clusters have their turn.
	immediately = time.Millisecond
	// operationInterval is for the steps of an operation, suspicionInterval for a primary that may have failed.
	operationInterval = 100 * time.Millisecond
	suspicionInterval = 250 * time.Millisecond
	// The others are for a cluster with which nothing is to be done.
	degradedInterval = time.Second
	healthyInterval  = 10 * time.Second
	stoppedInterval  = 30 * time.Second
)
