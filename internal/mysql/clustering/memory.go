// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"slices"
	"time"
)

// History is what the manager remembers of its earlier looks: clocks, and acts that did not help. A manager that starts
// anew starts them anew; nothing that is wanted or was agreed on is kept here.
type History struct {
	// StopAskedSince is when the wish to stop was first seen, ReadOnlySince when the primary was first seen read-only for
	// a switchover, and GaveUpAt when a switchover last took too long.
	StopAskedSince, ReadOnlySince, GaveUpAt time.Time
	// Instances are by index.
	Instances []InstanceHistory
}

// InstanceHistory is what is remembered of an instance.
type InstanceHistory struct {
	// UnreachableSince is zero while it answers; Misses counts the looks since.
	UnreachableSince time.Time
	Misses           int
	// AheadSince is when it was first seen with transactions of the primary's own that the primary lacks.
	AheadSince time.Time
	// FailedAt is when an act on it last failed or did not help, and Failure why.
	FailedAt time.Time
	Failure  string
	// LastAction is the last act on it.
	LastAction string
}

const (
	// primaryDownAfter is for how long, and missesDown at how many looks, a primary must be silent whose pod looks well.
	primaryDownAfter  = 500 * time.Millisecond
	primaryDownMisses = 2
	// clusterStartTimeout is how long a cluster that has just started waits for the primary it had.
	clusterStartTimeout = 30 * time.Second
	// switchoverTimeout is how long a primary may be read-only for a switchover.
	switchoverTimeout = 10 * time.Second
	// switchoverRetryAfter is the time between two attempts.
	switchoverRetryAfter = 30 * time.Second
	// killClientsAfter is how long a primary may hesitate to become read-only before its clients are cut off.
	killClientsAfter = 2 * time.Second
	// stopTimeout is how long a stop may take to be reached.
	stopTimeout = 15 * time.Second
	// aheadGracePeriod keeps transactions in flight from being taken for lost ones.
	aheadGracePeriod = time.Second
	// actionBackoff is how long an instance is left alone after an act that did not help.
	actionBackoff = 2 * time.Second
	// maxSwitchoverLag is how far behind a replica may be for a switchover to begin.
	maxSwitchoverLag = 5 * time.Second
)

// UpdateHistory adds a look to what is remembered, before Decide.
func UpdateHistory(before History, o Observed) History {
	o.History = before
	v := newView(o)
	after := History{
		StopAskedSince: startOfStreak(before.StopAskedSince, o.StopAsked, o.Now),
		ReadOnlySince:  startOfStreak(before.ReadOnlySince, v.switchAsked() && v.closed(v.p), o.Now),
		GaveUpAt:       before.GaveUpAt,
		Instances:      make([]InstanceHistory, v.n),
	}
	overdue := !after.ReadOnlySince.IsZero() && o.Now.Sub(after.ReadOnlySince) >= switchoverTimeout
	if overdue || v.switchAsked() && v.at(v.p).Pending && v.at(v.p).PendingFor >= switchoverTimeout {
		after.GaveUpAt = o.Now
	}
	for i := range v.n {
		past := v.past(i)
		past.UnreachableSince = startOfStreak(past.UnreachableSince, !v.at(i).Reachable, o.Now)
		past.AheadSince = startOfStreak(past.AheadSince, !v.ahead(i).IsEmpty(), o.Now)
		past.Misses++
		if v.at(i).Reachable {
			past.Misses = 0
		}
		after.Instances[i] = past
	}
	return after
}

// WithResult adds an act to what is remembered; failure is empty if it succeeded. The same act twice on an instance did not help.
func (m History) WithResult(do Action, at time.Time, failure string) History {
	m.Instances = slices.Clone(m.Instances)
	for _, i := range TargetInstances(do) {
		for len(m.Instances) <= i {
			m.Instances = append(m.Instances, InstanceHistory{})
		}
		past, this := &m.Instances[i], fmt.Sprintf("%T%v", do, do)
		switch {
		case failure != "":
			past.FailedAt, past.Failure = at, failure
		case past.LastAction == this:
			past.FailedAt, past.Failure = at, ""
		default:
			past.FailedAt, past.Failure = time.Time{}, ""
		}
		past.LastAction = this
	}
	return m
}

// startOfStreak keeps the beginning of something that goes on.
func startOfStreak(before time.Time, goesOn bool, now time.Time) time.Time {
	switch {
	case !goesOn:
		return time.Time{}
	case before.IsZero():
		return now
	default:
		return before
	}
}
