// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// followUpLimit is the time after the end of a stop during which HasJustExpired is true. Passes of objects whose stop
// has just expired run after passes that end overdue stops of other objects.
const followUpLimit = 2 * time.Minute

// MaxRecords is the maximum number of stops that are recorded for one switch.
const MaxRecords = 10

// MaxScheduled is the maximum number of stops by one Slumber that an object records: a week of nights, and the
// current one.
const MaxScheduled = 8

// Records are the stops of one switch, newest first. Only the newest stop can still be requested.
type Records []torporv1alpha1.StopRecord

// RequestedStop returns the stop that the switch requests; nil if it requests none.
func (r Records) RequestedStop() *torporv1alpha1.StopRecord {
	if len(r) == 0 || !r[0].Requested {
		return nil
	}
	return &r[0]
}

// Holds reports whether a stop is in effect: the switch requests it, and its end is not recorded yet.
func (r Records) Holds() bool {
	newest := r.RequestedStop()
	return newest != nil && newest.EndedAt == nil
}

// HasExpired reports whether a stop that the switch still requests has reached its end.
func (r Records) HasExpired() bool {
	newest := r.RequestedStop()
	return newest != nil && newest.EndedAt != nil
}

// HasReachedEnd reports whether a stop that the switch still requests has reached its end, even if the record does
// not contain this yet. The object then runs, or is about to start.
func (r Records) HasReachedEnd(now time.Time) bool {
	newest := r.RequestedStop()
	return newest != nil && (newest.EndedAt != nil || isOver(newest, now))
}

// isOver reports whether the end that a user set for a stop has passed.
func isOver(stop *torporv1alpha1.StopRecord, now time.Time) bool {
	return stop.RequestedUntil != "" && stop.Until != nil && !now.Before(stop.Until.Time)
}

// HasJustExpired reports whether the newest stop has ended by itself within the last followUpLimit, or at a time
// that is not recorded yet.
func (r Records) HasJustExpired(now time.Time) bool {
	return len(r) > 0 && r[0].StartedBy == torporv1alpha1.UntilAnnotation && (r[0].EndedAt == nil || now.Sub(r[0].EndedAt.Time) < followUpLimit)
}

// IsEndSavedIn reports whether a saved status already records the end of the newest stop, with the current request and
// requested end. Only then may the switch be reset. Otherwise, if the manager restarts after the reset, it does not
// know the reason for the reset.
func (r Records) IsEndSavedIn(saved Records) bool {
	newest, last := r.RequestedStop(), saved.RequestedStop()
	return newest != nil && last != nil && last.StartedBy == torporv1alpha1.UntilAnnotation &&
		last.RequestVersion == newest.RequestVersion && last.RequestedUntil == newest.RequestedUntil
}

// NextRecords returns the records, updated with the current request of an object. Calling it again with the result
// changes nothing.
func NextRecords(before Records, asked Request, now time.Time) Records {
	var next Records
	for _, stop := range before {
		next = append(next, *stop.DeepCopy())
	}
	if !asked.IsStopped {
		if newest := next.RequestedStop(); newest != nil {
			withdraw(newest, asked, now)
		}
		return next
	}
	if newest := next.RequestedStop(); newest != nil && asked.Version != "" && newest.RequestVersion != "" && asked.Version != newest.RequestVersion {
		// The switch was reset and set again between two passes. The stored version must not be empty: a schema that
		// drops it must not cause a new stop in each pass.
		withdraw(newest, Request{}, now)
	}
	if next.RequestedStop() == nil {
		next = next.begin(asked, now)
	}
	newest := next.RequestedStop()
	setEnd(newest, asked, now)
	hasPassed := isOver(newest, now)
	switch {
	case hasPassed && newest.EndedAt == nil:
		newest.EndedAt, newest.StartedBy = new(metav1.NewTime(now)), torporv1alpha1.UntilAnnotation
	case !hasPassed && newest.EndedAt != nil:
		// A user has set a later end, or removed the end, after the stop had ended. This begins another stop.
		newest.Requested = false
		again := torporv1alpha1.StopRecord{Since: metav1.NewTime(now), By: cmp.Or(asked.UntilBy, newest.By), RequestVersion: newest.RequestVersion, Requested: true}
		next = next.add(again)
		setEnd(next.RequestedStop(), asked, now)
	}
	next.RequestedStop().Reason = truncate(asked.Reason, maxReason)
	return next
}

// begin adds the requested stop.
func (r Records) begin(asked Request, now time.Time) Records {
	lastVersion := ""
	if len(r) > 0 {
		lastVersion = r[0].RequestVersion
	}
	at := asked.At
	if at.IsZero() || at.After(now) {
		at = now
	}
	return r.add(torporv1alpha1.StopRecord{Since: metav1.NewTime(at), By: asked.requester(lastVersion), RequestVersion: asked.Version, Requested: true})
}

func (r Records) add(stop torporv1alpha1.StopRecord) Records {
	r = slices.Insert(r, 0, stop)
	return r[:min(len(r), MaxRecords)]
}

// withdraw records that the switch has been reset.
func withdraw(stop *torporv1alpha1.StopRecord, asked Request, now time.Time) {
	lastVersion := stop.RequestVersion
	stop.Requested = false
	if asked.Version != "" {
		stop.RequestVersion = asked.Version
	}
	if stop.EndedAt != nil {
		return
	}
	at := asked.At
	if at.IsZero() || at.After(now) || at.Before(stop.Since.Time) {
		at = now
	}
	stop.EndedAt = new(metav1.NewTime(at))
	if stop.StartedBy == "" { // A recorded cause of the start is kept.
		stop.StartedBy = asked.requester(lastVersion)
	}
}

// setEnd records the end of a stop. It ignores an end before the start of the stop, which is left over from an earlier
// stop and would end the new stop immediately.
func setEnd(stop *torporv1alpha1.StopRecord, asked Request, now time.Time) {
	text := truncate(asked.Until, maxUntil)
	if text == stop.RequestedUntil {
		return
	}
	stop.RequestedUntil, stop.Until, stop.UntilBy = text, nil, asked.UntilBy
	if asked.Until == "" {
		return
	}
	writtenAt := asked.UntilWrittenAt
	if writtenAt.IsZero() {
		writtenAt = now
	}
	if until, err := ParseUntil(asked.Until, writtenAt); err == nil && until.After(stop.Since.Time) {
		stop.Until = new(metav1.NewTime(until))
	}
}
