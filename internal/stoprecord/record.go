// SPDX-License-Identifier: Apache-2.0

package stoprecord

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// followUpLimit is for how long after a stop has expired the passes of its object wait for stops that are overdue.
const followUpLimit = 2 * time.Minute

// MaxRecords is how many stops are kept of one switch.
const MaxRecords = 10

// Records are the stops of one switch, the newest first. Only the newest can be requested still.
type Records []torporv1alpha1.StopRecord

// RequestedStop returns the stop that the switch asks for; nil if it asks for none.
func (r Records) RequestedStop() *torporv1alpha1.StopRecord {
	if len(r) == 0 || !r[0].Requested {
		return nil
	}
	return &r[0]
}

// Holds reports whether something is stopped: the switch says so, and the stop has not ended by itself.
func (r Records) Holds() bool {
	newest := r.RequestedStop()
	return newest != nil && newest.EndedAt == nil
}

// HasExpired reports whether a stop has ended by itself that the switch still asks for.
func (r Records) HasExpired() bool {
	newest := r.RequestedStop()
	return newest != nil && newest.EndedAt != nil
}

// HasJustExpired reports whether the newest stop has ended by itself not long ago, or is about to.
func (r Records) HasJustExpired(now time.Time) bool {
	return len(r) > 0 && r[0].StartedBy == torporv1alpha1.UntilAnnotation && (r[0].EndedAt == nil || now.Sub(r[0].EndedAt.Time) < followUpLimit)
}

// IsEndSavedIn reports whether the records in a saved status already say that the newest stop ends by its time, as it is asked for now. Only then may
// the switch be set back, since a manager that dies after that would not know why it was.
func (r Records) IsEndSavedIn(saved Records) bool {
	newest, last := r.RequestedStop(), saved.RequestedStop()
	return newest != nil && last != nil && last.StartedBy == torporv1alpha1.UntilAnnotation &&
		last.RequestVersion == newest.RequestVersion && last.RequestedUntil == newest.RequestedUntil
}

// NextRecords returns the record that follows from what an object asks for now. It is the same however often it is asked, and however
// long nobody did.
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
		// It was set back and set again while nobody looked. A schema that drops the version must not make a stop of each pass.
		withdraw(newest, Request{}, now)
	}
	if next.RequestedStop() == nil {
		next = next.begin(asked, now)
	}
	newest := next.RequestedStop()
	setEnd(newest, asked, now)
	isOver := newest.RequestedUntil != "" && newest.Until != nil && !now.Before(newest.Until.Time)
	switch {
	case isOver && newest.EndedAt == nil:
		newest.EndedAt, newest.StartedBy = new(metav1.NewTime(now)), torporv1alpha1.UntilAnnotation
	case !isOver && newest.EndedAt != nil:
		// Somebody has set a later end, or none, after the stop had ended: it is another one.
		newest.Requested = false
		again := torporv1alpha1.StopRecord{Since: metav1.NewTime(now), By: cmp.Or(asked.UntilBy, newest.By), RequestVersion: newest.RequestVersion, Requested: true}
		next = next.add(again)
		setEnd(next.RequestedStop(), asked, now)
	}
	next.RequestedStop().Reason = truncate(asked.Reason, maxReason)
	return next
}

// begin adds the stop that is asked for. When that was is not known of an object whose writes nobody notes.
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

// withdraw notes that the switch has been set back.
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
	if stop.StartedBy == "" { // Else it was about to end by itself.
		stop.StartedBy = asked.requester(lastVersion)
	}
}

// setEnd notes when a stop ends by itself. A time that was over before the stop began is left from an earlier one, which would void
// this one at once.
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
