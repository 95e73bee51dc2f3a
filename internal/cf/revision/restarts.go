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
	// MaxRestarts is how many revisions an app remembers.
	MaxRestarts = 20
	// maxEndedBytes bounds the annotation with ended revisions: names of users may be long, and all annotations share 256 KiB.
	maxEndedBytes = 16 << 10
)

// DescribeCurrent returns how the app's revision began and what it runs, as admission recorded it.
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

// ListRestarts returns the revisions that the status of an app remembers, and those that ended before its controller recorded
// them, the newest first.
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

// keepEndedRevisions returns the value of the annotation with ended revisions after a change. The revision that the change ends is
// kept unless the status has it already. Earlier ones are kept until the status has passed them.
func keepEndedRevisions(old *korifiv1alpha1.CFApp, m RevisionState) string {
	if old == nil || m.Cause == "" {
		return previousAnnotation(old, torporv1alpha1.EndedRevisionsAnnotation)
	}
	kept := slices.DeleteFunc(readEndedRevisions(old), func(r korifiv1alpha1.Restart) bool { return r.Revision < old.Status.ObservedRevision })
	if _, _, unreadable := ReadRevision(old); unreadable == "" && !isRecorded(old, DescribeCurrent(old)) {
		kept = append(kept, DescribeCurrent(old))
	}
	for kept = kept[max(0, len(kept)-MaxRestarts):]; len(kept) > 0; kept = kept[1:] {
		// Strings, numbers and times can be encoded.
		if text, _ := json.Marshal(kept); len(text) <= maxEndedBytes {
			return string(text)
		}
	}
	return ""
}

// isRecorded reports whether the status of an app knows all of its revision that a later look can no longer tell.
func isRecorded(app *korifiv1alpha1.CFApp, current korifiv1alpha1.Restart) bool {
	return slices.ContainsFunc(app.Status.Restarts, func(r korifiv1alpha1.Restart) bool {
		return r.Revision == current.Revision && r.Droplet == current.Droplet && r.StartedBy == current.StartedBy
	})
}

// readEndedRevisions returns what keepEndedRevisions has written, the oldest first; nothing if it is not what admission writes.
func readEndedRevisions(app *korifiv1alpha1.CFApp) []korifiv1alpha1.Restart {
	text := app.Annotations[torporv1alpha1.EndedRevisionsAnnotation]
	var ended []korifiv1alpha1.Restart
	if len(text) > maxEndedBytes || json.Unmarshal([]byte(text), &ended) != nil {
		return nil
	}
	return ended
}
