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

// listAuditEvents lists the restarts of apps. With target_guids it also lists Kubernetes events about them.
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
		// Events cost a request to the API server for each app, so a list of all apps omits them.
		if targets != nil {
			if events, err = r.Store.ListEvents(ctx, r.Caller, app); err != nil {
				return Response{}, err
			}
		}
		found = append(found, presenter.ForAuditEvents(app, events)...)
	}
	// Times have whole seconds, so a stable sort keeps the order of events of one app.
	slices.SortStableFunc(found, func(a, b presenter.AuditEvent) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
	return respondList(r, resourceList[presenter.AuditEvent]{
		items:   found,
		filters: map[string]func(presenter.AuditEvent) string{"types": func(e presenter.AuditEvent) string { return e.Type }},
		// The newest come first unless the client orders by a field without a dash.
		reversed: r.query().Get("order_by") != "" && !r.isReversed(),
	}, unchanged)
}
