// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// MaxRestarts is the maximum number of recorded revisions of an app.
	MaxRestarts = 20
	// maxEndedBytes limits the size of the annotation with ended revisions. User names may be long, and all annotations
	// together may have 256 KiB.
	maxEndedBytes = 16 << 10
)

// DescribeCurrent returns the record of the app's current revision, read from the annotations that admission writes.
func DescribeCurrent(app *korifiv1alpha1.CFApp) korifiv1alpha1.Restart {
	current, _, _ := ReadRevision(app)
	r := korifiv1alpha1.Restart{
		Revision: current, Cause: korifiv1alpha1.RestartCause(app.Annotations[torporv1alpha1.CauseAnnotation]), By: app.Annotations[torporv1alpha1.RevisedByAnnotation],
		At: metav1.NewTime(BegunAt(app)), Droplet: app.Annotations[torporv1alpha1.DropletAnnotation],
	}
	r.Cause = cmp.Or(r.Cause, korifiv1alpha1.CausedByCreation)
	if at, err := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.StartedAtAnnotation]); err == nil {
		r.StartedBy, r.StartedAt = app.Annotations[torporv1alpha1.StartedByAnnotation], new(metav1.NewTime(at))
	}
	return r
}

// maxRestartPause is the maximum time between the stop and the start of one restart.
const maxRestartPause = 10 * time.Second

// DescribeCause describes the cause and the requester of a revision. Clients restart an app by stopping and starting
// it, so a stop is described as a restart if the same user started the app within maxRestartPause.
func DescribeCause(r korifiv1alpha1.Restart) string {
	cause := r.Cause
	if cause == korifiv1alpha1.CausedByStop && r.StartedAt != nil && r.StartedBy == r.By && r.StartedAt.Sub(r.At.Time) <= maxRestartPause {
		cause = korifiv1alpha1.CausedByRestart
	}
	return string(cause) + " by " + cmp.Or(r.By, "an unknown user")
}

// ListRestarts returns at most MaxRestarts revisions, newest first: those in the status of an app, and those that ended
// before the controller recorded them.
func ListRestarts(app *korifiv1alpha1.CFApp) []korifiv1alpha1.Restart {
	all := slices.Clone(app.Status.Restarts)
	for _, ended := range readEndedRevisions(app) {
		newestFirst := func(r korifiv1alpha1.Restart, revision int64) int { return cmp.Compare(revision, r.Revision) }
		i, known := slices.BinarySearchFunc(all, ended.Revision, newestFirst)
		if !known {
			all = slices.Insert(all, i, ended)
			continue
		}
		all[i].Droplet, all[i].StartedBy, all[i].StartedAt = ended.Droplet, ended.StartedBy, ended.StartedAt
	}
	return all[:min(len(all), MaxRestarts)]
}

// keepEndedRevisions returns the new value of the annotation with ended revisions after a change. It adds the revision
// that the change ends, unless the status already contains all its data. It keeps earlier revisions until the status
// reports a newer one or the annotation is full.
func keepEndedRevisions(old *korifiv1alpha1.CFApp, m RevisionState) string {
	if old == nil || m.Cause == "" {
		return previousAnnotation(old, torporv1alpha1.EndedRevisionsAnnotation)
	}
	kept := slices.DeleteFunc(readEndedRevisions(old), func(r korifiv1alpha1.Restart) bool { return r.Revision < old.Status.ObservedRevision })
	if _, _, unreadable := ReadRevision(old); unreadable == "" && !isRecorded(old, DescribeCurrent(old)) {
		kept = append(kept, DescribeCurrent(old))
	}
	for kept = kept[max(0, len(kept)-MaxRestarts):]; len(kept) > 0; kept = kept[1:] {
		// Strings, numbers and times can always be encoded.
		if text, _ := json.Marshal(kept); len(text) <= maxEndedBytes {
			return string(text)
		}
	}
	return ""
}

// isRecorded reports whether the status of an app contains all data about its revision that later changes overwrite.
func isRecorded(app *korifiv1alpha1.CFApp, current korifiv1alpha1.Restart) bool {
	return slices.ContainsFunc(app.Status.Restarts, func(r korifiv1alpha1.Restart) bool {
		return r.Revision == current.Revision && r.Droplet == current.Droplet && r.StartedBy == current.StartedBy
	})
}

// readEndedRevisions returns the revisions in the annotation that keepEndedRevisions writes, oldest first. It returns
// nil if the value is invalid or too large.
func readEndedRevisions(app *korifiv1alpha1.CFApp) []korifiv1alpha1.Restart {
	text := app.Annotations[torporv1alpha1.EndedRevisionsAnnotation]
	var ended []korifiv1alpha1.Restart
	if len(text) > maxEndedBytes || json.Unmarshal([]byte(text), &ended) != nil {
		return nil
	}
	return ended
}
