// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// recordRestart inserts the app's current revision at the top of the list in the status, unless it is listed already.
// It returns the entry if it is new and was not caused by the creation of the app.
func recordRestart(o Observed) *korifiv1alpha1.Restart {
	app := o.App
	_, _, unreadable := revision.ReadRevision(app)
	current, status := revision.DescribeCurrent(app), &app.Status
	status.Restarts = revision.ListRestarts(app)
	known := len(status.Restarts) > 0 && status.Restarts[0].Revision >= current.Revision
	// A revision without a recorded cause was written by bypassing admission, so it is neither recorded nor counted.
	if unreadable != "" || !known && len(status.Restarts) > 0 && current.Cause == korifiv1alpha1.CausedByCreation {
		return nil
	}
	if !known {
		status.Restarts = slices.Insert(status.Restarts, 0, current)
		status.Restarts = status.Restarts[:min(len(status.Restarts), revision.MaxRestarts)]
	}
	recordSettings(status.Restarts, o)
	newest := &status.Restarts[0]
	if newest.Revision == current.Revision {
		// If a revision begins stopped, these fields are empty until the app is started.
		newest.Droplet, newest.StartedBy, newest.StartedAt = cmp.Or(current.Droplet, newest.Droplet), current.StartedBy, current.StartedAt
	}
	if newest.Cause == korifiv1alpha1.CausedByCreation {
		return nil
	}
	if status.LastRestart = newest.DeepCopy(); known {
		return nil
	}
	return status.LastRestart
}

// recordSettings records the name of the Secret with the settings of each process that has an LRP of the revision. If
// several processes have the same type, it records the settings of the oldest one.
func recordSettings(restarts []korifiv1alpha1.Restart, o Observed) {
	oldest := revision.FindOldestProcesses(o.Processes)
	for i := range o.LRPs {
		l := &o.LRPs[i]
		if p := oldest[l.Spec.ProcessType]; p != nil && p.Name != l.Labels[korifiv1alpha1.ProcessGUIDLabel] {
			continue
		}
		name, version := l.Annotations[torporv1alpha1.SettingsAnnotation], revision.ParseVersion(l.Spec.Version)
		at := slices.IndexFunc(restarts, func(r korifiv1alpha1.Restart) bool { return r.Revision == version })
		if name == "" || at < 0 {
			continue
		}
		if restarts[at].Settings == nil {
			restarts[at].Settings = map[string]string{}
		}
		restarts[at].Settings[l.Spec.ProcessType] = name
	}
}

// RestartNote describes the start of a revision. unseen is the number of earlier revisions that ended before they were
// observed.
func RestartNote(r *korifiv1alpha1.Restart, unseen int64) string {
	note := fmt.Sprintf("revision %d began: %s", r.Revision, revision.DescribeCause(*r))
	if unseen > 0 {
		note += fmt.Sprintf("; %d earlier revisions ended before they were observed", unseen)
	}
	return note
}
