// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// listAuditEvents lists the stops, starts, restarts and deployments of apps. With target_guids it also lists Kubernetes
// events about the apps.
func listAuditEvents(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.spacesOfApps(ctx, "target_guids")
	if err != nil {
		return Response{}, err
	}
	apps, err := r.Store.ListApps(spaces)
	if err != nil {
		return Response{}, err
	}
	slices.SortFunc(apps, revision.CompareByAge)
	targets := payloads.ParseFilter(r.query(), "target_guids")
	var found []presenter.AuditEvent
	for _, app := range apps {
		if !targets.Matches(app.Name) {
			continue
		}
		var events []corev1.Event
		// Reading events costs one request to the API server per app, so a list of all apps omits them.
		if targets != nil {
			if events, err = r.Store.ListEvents(ctx, r.Caller, app); err != nil {
				return Response{}, err
			}
		}
		found = append(found, presenter.ForAuditEvents(app, events)...)
	}
	// Timestamps have whole seconds, so the sort must be stable to keep the order of an app's events.
	slices.SortStableFunc(found, func(a, b presenter.AuditEvent) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
	return respondList(r, resourceList[presenter.AuditEvent]{
		items:   found,
		filters: map[string]func(presenter.AuditEvent) string{"types": func(e presenter.AuditEvent) string { return e.Type }},
		// The newest events are first, unless the client orders by a field in ascending order.
		reversed: r.query().Get("order_by") != "" && !r.isReversed(),
	}, unchanged)
}
