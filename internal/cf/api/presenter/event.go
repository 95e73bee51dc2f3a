// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// Event is an audit event of CF v3.
type Event struct {
	GUID         string            `json:"guid"`
	CreatedAt    string            `json:"created_at"`
	UpdatedAt    string            `json:"updated_at"`
	Type         string            `json:"type"`
	Actor        Party             `json:"actor"`
	Target       Party             `json:"target"`
	Data         map[string]string `json:"data"`
	Space        *GUID             `json:"space"`
	Organization *GUID             `json:"organization"`

	at time.Time
}

// Party is who did something, or what it was done to.
type Party struct {
	GUID string `json:"guid"`
	Type string `json:"type"`
	Name string `json:"name"`
}

// EventsOf tells an app's story, the newest first: its restarts, and what Kubernetes has told of it.
func EventsOf(app *korifiv1alpha1.CFApp, told []corev1.Event) []Event {
	target := Party{GUID: app.Name, Type: "app", Name: app.Spec.DisplayName}
	space := &GUID{GUID: app.Namespace}
	kinds := map[korifiv1alpha1.RestartCause]string{
		korifiv1alpha1.CausedByStop: "audit.app.stop", korifiv1alpha1.CausedByRestart: "audit.app.restart",
		korifiv1alpha1.CausedByDeployment: "audit.app.deployment.create", korifiv1alpha1.CausedByRepair: "audit.app.repair",
	}
	var all []Event
	for _, r := range began(app) {
		if r.Cause == "" || r.Cause == korifiv1alpha1.CausedByCreation {
			continue
		}
		all = append(all, Event{
			GUID: RevisionGUID(app.Name, r.Revision), Type: kinds[r.Cause], Actor: Party{GUID: r.By, Type: "user", Name: r.By}, Target: target,
			Data: map[string]string{"revision": restart.FormatRevision(r.Revision), "droplet": r.Droplet}, Space: space, at: r.At.Time,
		})
	}
	for i := range told {
		e := &told[i]
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if at.IsZero() {
			at = e.CreationTimestamp.Time
		}
		by := e.ReportingController
		if by == "" {
			by = e.Source.Component
		}
		all = append(all, Event{
			GUID: string(e.UID), Type: "app." + strings.ToLower(e.Reason), Actor: Party{GUID: by, Type: "process", Name: by}, Target: target,
			Data: map[string]string{"reason": e.Message}, Space: space, at: at,
		})
	}
	slices.SortStableFunc(all, func(a, b Event) int { return b.at.Compare(a.at) })
	for i := range all {
		all[i].CreatedAt, all[i].UpdatedAt = Stamp(all[i].at), Stamp(all[i].at)
	}
	return all
}
