// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"slices"
	"time"
)

// History is what the manager remembers of its earlier looks: clocks, and actions that did not help. A manager that
// restarts starts them anew; nothing that is wanted or was agreed on is kept here.
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

// UpdateHistory adds a look to the history, before Decide.
func UpdateHistory(before History, o Observed) History {
	o.History = before
	d := derive(o)
	p := d.primary
	after := History{
		StopAskedSince: startOfStreak(before.StopAskedSince, o.StopAsked, o.Now),
		ReadOnlySince:  startOfStreak(before.ReadOnlySince, d.switchoverRequested && p.IsReadOnly, o.Now),
		// It stays after the primary is writable again, so that the next attempt does not follow at once.
		GaveUpAt:  before.GaveUpAt,
		Instances: make([]InstanceHistory, len(d.instances)),
	}
	isOverdue := !after.ReadOnlySince.IsZero() && o.Now.Sub(after.ReadOnlySince) >= switchoverTimeout
	if isOverdue || d.switchoverRequested && p.Pending && p.PendingFor >= switchoverTimeout {
		after.GaveUpAt = o.Now
	}
	for _, i := range d.instances {
		past := i.Past
		past.UnreachableSince = startOfStreak(past.UnreachableSince, !i.Reachable, o.Now)
		past.AheadSince = startOfStreak(past.AheadSince, !i.Ahead.IsEmpty(), o.Now)
		past.Misses++
		if i.Reachable {
			past.Misses = 0
		}
		after.Instances[i.Index] = past
	}
	return after
}

// WithResult adds an action to the history; failure is empty if it succeeded. The same action twice on an instance did not
// help.
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
		case past.LastAction == this: // It succeeded before, and yet the rule that asked for it matched again.
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
