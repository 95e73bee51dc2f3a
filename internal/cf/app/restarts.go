// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// maxRestarts is how many revisions an app remembers.
const maxRestarts = 20

// recordRestart puts the app's revision on top of the list in its status. It returns the entry if it is new and does not come
// from the creation of the app.
func recordRestart(app *korifiv1alpha1.CFApp, lrps []eiriniv1.LRP, now time.Time) *korifiv1alpha1.Restart {
	current, _, unreadable := revision.ReadRevision(app)
	status := &app.Status
	known := len(status.Restarts) > 0 && status.Restarts[0].Revision >= current
	// A revision without a cause was written past admission, which did not count it.
	if unreadable != "" || !known && len(status.Restarts) > 0 && app.Annotations[torporv1alpha1.CauseAnnotation] == "" {
		return nil
	}
	if !known {
		status.Restarts = slices.Insert(status.Restarts, 0, newRestart(app, current, now))
		status.Restarts = status.Restarts[:min(len(status.Restarts), maxRestarts)]
	}
	newest := &status.Restarts[0]
	if droplet := app.Annotations[torporv1alpha1.DropletAnnotation]; newest.Revision == current && droplet != "" {
		newest.Droplet = droplet // A revision that began stopped has its droplet from the start on.
	}
	if newest.Revision == current {
		recordSettings(newest, lrps)
		revision.RecordStart(newest, app)
	}
	if newest.Cause == korifiv1alpha1.CausedByCreation {
		return nil
	}
	if status.LastRestart = newest.DeepCopy(); known {
		return nil
	}
	return status.LastRestart
}

// recordSettings notes what the processes run with, each from the moment on in which it has an LRP of the revision.
func recordSettings(r *korifiv1alpha1.Restart, lrps []eiriniv1.LRP) {
	for i := range lrps {
		l := &lrps[i]
		name := l.Annotations[torporv1alpha1.SettingsAnnotation]
		if name == "" || revision.ParseVersion(l.Spec.Version) != r.Revision {
			continue
		}
		if r.Settings == nil {
			r.Settings = map[string]string{}
		}
		r.Settings[l.Spec.ProcessType] = name
	}
}

// newRestart returns how the app's revision began, as admission recorded it.
func newRestart(app *korifiv1alpha1.CFApp, current int64, now time.Time) korifiv1alpha1.Restart {
	r := korifiv1alpha1.Restart{
		Revision: current, Cause: korifiv1alpha1.RestartCause(app.Annotations[torporv1alpha1.CauseAnnotation]),
		By: app.Annotations[torporv1alpha1.RevisedByAnnotation], At: metav1.NewTime(now),
	}
	if r.Cause == "" {
		r.Cause, r.At = korifiv1alpha1.CausedByCreation, app.CreationTimestamp
	}
	if at, err := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.RevisedAtAnnotation]); err == nil {
		r.At = metav1.NewTime(at)
	}
	return r
}

// RestartNote describes a revision that began. Unseen are the revisions before it that were over before a pass saw them.
func RestartNote(r *korifiv1alpha1.Restart, unseen int64) string {
	note := fmt.Sprintf("revision %d began: %s by %s", r.Revision, r.Cause, cmp.Or(r.By, "somebody unknown"))
	if unseen > 0 {
		note += fmt.Sprintf("; %d before it were over at once", unseen)
	}
	return note
}
