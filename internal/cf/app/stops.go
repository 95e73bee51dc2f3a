// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// NextStops returns the record of an app's stops at the time now.
func NextStops(app *korifiv1alpha1.CFApp, now time.Time) stoprecord.Records {
	return stoprecord.NextRecords(app.Status.Stops, readStopRequest(app), now)
}

// readStopRequest returns the stop or start that an app requests. A stop begins a revision, and admission records the
// requester of the stop. If a user starts the app, admission records this user in the same revision.
func readStopRequest(app *korifiv1alpha1.CFApp) stoprecord.Request {
	current := revision.DescribeCurrent(app)
	asked := stoprecord.Request{Reason: app.Annotations[torporv1alpha1.ReasonAnnotation], Until: app.Annotations[torporv1alpha1.UntilAnnotation]}
	asked.UntilBy = stoprecord.ReadAuthor(app.Annotations, torporv1alpha1.UntilAnnotation)
	if written := stoprecord.WriteTimeOf(app, torporv1alpha1.UntilAnnotation); written != nil {
		asked.UntilWrittenAt = written.Time
	}
	if app.Spec.DesiredState != korifiv1alpha1.StartedState {
		// A new app waits for its first start. This does not count as a stop unless the user has set an end time.
		asked.IsStopped = current.Cause != korifiv1alpha1.CausedByCreation || asked.Until != ""
		asked.By, asked.Version, asked.At = current.By, revision.FormatRevision(current.Revision), current.At.Time
		return asked
	}
	for _, r := range append([]korifiv1alpha1.Restart{current}, revision.ListRestarts(app)...) {
		if r.StartedBy != "" && r.StartedAt != nil { // All later revisions began while the app was already started.
			asked.By, asked.Version, asked.At = r.StartedBy, revision.FormatRevision(r.Revision)+" started", r.StartedAt.Time
			break
		}
	}
	return asked
}

// endsStop reports whether the app must be started because its stop has reached its end time. The app is started only
// after the status has recorded this, so the reason for the start is not lost if the manager restarts.
func endsStop(o Observed) bool {
	return o.Stops.HasExpired() && o.Stops.IsEndSavedIn(o.App.Status.Stops)
}

// scheduledNote describes the Slumber that stops an app although the app's spec requests a start, with the reason and
// the end time.
func scheduledNote(o Observed) string {
	if o.Scheduled == nil || o.App.Spec.DesiredState != korifiv1alpha1.StartedState {
		return ""
	}
	return stoprecord.Records(o.Scheduled.Stops).Describe()
}

// stopNote describes the requester, the reason and the end time of a stop, and any ignored value of UntilAnnotation.
func stopNote(stops stoprecord.Records) string {
	note := stops.Describe()
	if ignored := stops.DescribeIgnored(torporv1alpha1.UntilAnnotation); ignored != "" {
		note += "; " + ignored
	}
	if stops.HasExpired() {
		note += fmt.Sprintf("; the app was stopped until %s and is about to be started",
			stops.RequestedStop().Until.UTC().Format(time.RFC3339))
	}
	return note
}
