// SPDX-License-Identifier: Apache-2.0

package presenter

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// AuditEvent is an audit event of CF v3.
type AuditEvent struct {
	Resource
	Type         string            `json:"type"`
	Actor        EventParty        `json:"actor"`
	Target       EventParty        `json:"target"`
	Data         map[string]string `json:"data"`
	Space        *Reference        `json:"space"`
	Organization *Reference        `json:"organization"`

	at time.Time
}

// EventParty is the actor or target of an event.
type EventParty struct {
	GUID string `json:"guid"`
	Type string `json:"type"`
	Name string `json:"name"`
}

// revisionBegan is the reason of the Kubernetes event for a new revision. The app's status records the same fact.
const revisionBegan = "RevisionBegan"

// ForAuditEvents returns CF v3 audit events for the stops, starts, restarts and deployments of an app and for its
// Kubernetes events, newest first.
func ForAuditEvents(app *korifiv1alpha1.CFApp, events []corev1.Event) []AuditEvent {
	target := EventParty{GUID: app.Name, Type: "app", Name: app.Spec.DisplayName}
	space := &Reference{GUID: app.Namespace}
	kinds := map[korifiv1alpha1.RestartCause]string{
		korifiv1alpha1.CausedByStop: "audit.app.stop", korifiv1alpha1.CausedByRestart: "audit.app.restart",
		korifiv1alpha1.CausedByDeployment: "audit.app.deployment.create", korifiv1alpha1.CausedByRepair: "audit.app.repair",
	}
	var all []AuditEvent
	for _, r := range KnownRevisions(app) {
		guid := RevisionGUID(app.Name, r.Revision)
		data := map[string]string{
			"revision": revision.FormatRevision(r.Revision), "droplet": r.Droplet,
			"reason": "revision " + revision.FormatRevision(r.Revision) + ": " + revision.DescribeCause(r),
		}
		ofRevision := func(guid, kind, by string, at time.Time) AuditEvent {
			return AuditEvent{
				Resource: newResource(guid, at), Type: kind, Actor: EventParty{GUID: by, Type: "user", Name: by}, Target: target,
				Data: data, Space: space, at: at,
			}
		}
		if r.StartedAt != nil {
			all = append(all, ofRevision(guid+"-start", "audit.app.start", r.StartedBy, r.StartedAt.Time))
		}
		if r.Cause != "" && r.Cause != korifiv1alpha1.CausedByCreation {
			all = append(all, ofRevision(guid, kinds[r.Cause], r.By, r.At.Time))
		}
	}
	for i := range events {
		e := &events[i]
		if e.Reason == revisionBegan {
			continue
		}
		// Events created through events.k8s.io/v1 set EventTime and ReportingController instead of LastTimestamp and
		// Source.
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
		all = append(all, AuditEvent{
			Resource: newResource(string(e.UID), at), Type: "app." + strings.ToLower(e.Reason), Actor: EventParty{GUID: by, Type: "process", Name: by}, Target: target,
			Data: map[string]string{"reason": e.Message}, Space: space, at: at,
		})
	}
	slices.SortStableFunc(all, func(a, b AuditEvent) int { return b.at.Compare(a.at) })
	return all
}
