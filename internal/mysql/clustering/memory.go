// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"slices"
	"time"
)

// Memory is what the manager remembers of its earlier looks: clocks, and acts that did not help. A manager that starts
// anew starts them anew; nothing that is wanted or was agreed on is kept here.
type Memory struct {
	// StopAskedSince is when the wish to stop was first seen, ReadOnlySince when the primary was first seen read-only for
	// a switchover, and GaveUpAt when a switchover last took too long.
	StopAskedSince, ReadOnlySince, GaveUpAt time.Time
	// Instances are by index.
	Instances []Past
}

// Past is what is remembered of an instance.
type Past struct {
	// UnreachableSince is zero while it answers; Misses counts the looks since.
	UnreachableSince time.Time
	Misses           int
	// AheadSince is when it was first seen with transactions of the primary's own that the primary lacks.
	AheadSince time.Time
	// FailedAt is when an act on it last failed or did not help, and Failure why.
	FailedAt time.Time
	Failure  string
	// Last is the last act on it.
	Last string
}

const (
	// downAfter is for how long, and missesDown at how many looks, a primary must be silent whose pod looks well.
	downAfter  = 500 * time.Millisecond
	missesDown = 2
	// startPatience is how long a cluster that has just started waits for the primary it had.
	startPatience = 30 * time.Second
	// switchBound is how long a primary may be read-only for a switchover.
	switchBound = 10 * time.Second
	// switchPause is the time between two attempts.
	switchPause = 30 * time.Second
	// killAfter is how long a primary may hesitate to become read-only before its clients are cut off.
	killAfter = 2 * time.Second
	// stopBound is how long a stop may take to be reached.
	stopBound = 15 * time.Second
	// aheadAfter keeps transactions in flight from being taken for lost ones.
	aheadAfter = time.Second
	// actPause is how long an instance is left alone after an act that did not help.
	actPause = 2 * time.Second
	// maxSwitchLag is how far behind a replica may be for a switchover to begin.
	maxSwitchLag = 5 * time.Second
)

// Remember adds a look to what is remembered, before Decide.
func Remember(before Memory, o Observed) Memory {
	o.Memory = before
	v := newView(o)
	after := Memory{
		StopAskedSince: since(before.StopAskedSince, o.StopAsked, o.Now),
		ReadOnlySince:  since(before.ReadOnlySince, v.switchAsked() && v.closed(v.p), o.Now),
		GaveUpAt:       before.GaveUpAt,
		Instances:      make([]Past, v.n),
	}
	overdue := !after.ReadOnlySince.IsZero() && o.Now.Sub(after.ReadOnlySince) >= switchBound
	if overdue || v.switchAsked() && v.at(v.p).Pending && v.at(v.p).PendingFor >= switchBound {
		after.GaveUpAt = o.Now
	}
	for i := range v.n {
		past := v.past(i)
		past.UnreachableSince = since(past.UnreachableSince, !v.at(i).Reachable, o.Now)
		past.AheadSince = since(past.AheadSince, !v.ahead(i).Empty(), o.Now)
		past.Misses++
		if v.at(i).Reachable {
			past.Misses = 0
		}
		after.Instances[i] = past
	}
	return after
}

// Noted adds an act to what is remembered; failure is empty if it succeeded. The same act twice on an instance did not help.
func (m Memory) Noted(do Action, at time.Time, failure string) Memory {
	m.Instances = slices.Clone(m.Instances)
	for _, i := range Targets(do) {
		for len(m.Instances) <= i {
			m.Instances = append(m.Instances, Past{})
		}
		past, this := &m.Instances[i], fmt.Sprintf("%T%v", do, do)
		switch {
		case failure != "":
			past.FailedAt, past.Failure = at, failure
		case past.Last == this:
			past.FailedAt, past.Failure = at, ""
		default:
			past.FailedAt, past.Failure = time.Time{}, ""
		}
		past.Last = this
	}
	return m
}

// since keeps the beginning of something that goes on.
func since(before time.Time, goesOn bool, now time.Time) time.Time {
	switch {
	case !goesOn:
		return time.Time{}
	case before.IsZero():
		return now
	default:
		return before
	}
}
