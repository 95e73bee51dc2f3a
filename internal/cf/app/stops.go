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

// NextStops returns the record of the stops of an app at a time.
func NextStops(app *korifiv1alpha1.CFApp, now time.Time) stoprecord.Records {
	return stoprecord.NextRecords(app.Status.Stops, readStopRequest(app), now)
}

// readStopRequest reads the stop or start that an app requests. Admission has recorded who stopped it with
// the revision that the stop began, and who started it in that revision.
func readStopRequest(app *korifiv1alpha1.CFApp) stoprecord.Request {
	current := revision.DescribeCurrent(app)
	asked := stoprecord.Request{Reason: app.Annotations[torporv1alpha1.ReasonAnnotation], Until: app.Annotations[torporv1alpha1.UntilAnnotation]}
	asked.UntilBy = stoprecord.ReadAuthor(app.Annotations, torporv1alpha1.UntilAnnotation)
	if written := stoprecord.WriteTimeOf(app, torporv1alpha1.UntilAnnotation); written != nil {
		asked.UntilWrittenAt = written.Time
	}
	if app.Spec.DesiredState != korifiv1alpha1.StartedState {
		// A new app waits for its first start. That is no stop unless the user has set an end.
		asked.IsStopped = current.Cause != korifiv1alpha1.CausedByCreation || asked.Until != ""
		asked.By, asked.Version, asked.At = current.By, revision.FormatRevision(current.Revision), current.At.Time
		return asked
	}
	for _, r := range append([]korifiv1alpha1.Restart{current}, revision.ListRestarts(app)...) {
		if r.StartedBy != "" && r.StartedAt != nil { // Later revisions began while it ran.
			asked.By, asked.Version, asked.At = r.StartedBy, revision.FormatRevision(r.Revision)+" started", r.StartedAt.Time
			break
		}
	}
	return asked
}

// endsStop reports whether the app is to be started because its stop has reached its end. The end is recorded first,
// so that a manager that restarts after that still knows the reason.
func endsStop(o Observed) bool {
	return o.Stops.HasExpired() && o.Stops.IsEndSavedIn(o.App.Status.Stops)
}

// scheduledNote names the Slumber that stops an app although its spec requests a start, with reason and end.
func scheduledNote(o Observed) string {
	if o.Scheduled == nil || o.App.Spec.DesiredState != korifiv1alpha1.StartedState {
		return ""
	}
	return stoprecord.Records(o.Scheduled.Stops).Describe()
}

// stopNote names the requester, the reason and the end of a stop, and any value that was ignored.
func stopNote(stops stoprecord.Records) string {
	note := stops.Describe()
	if ignored := stops.DescribeIgnored(torporv1alpha1.UntilAnnotation); ignored != "" {
		note += "; " + ignored
	}
	if stops.HasExpired() {
		note += fmt.Sprintf("; it was stopped until %s and is about to be started", stops.RequestedStop().Until.UTC().Format(time.RFC3339))
	}
	return note
}
