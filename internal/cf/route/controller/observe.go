// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cf/route"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

func (c Controller) observe(ctx context.Context, obj *korifiv1alpha1.CFRoute) (route.Observed, error) {
	seen := route.Observed{
		Route: obj, Publisher: c.Publisher, Apps: map[string]*korifiv1alpha1.CFApp{}, Processes: map[string]*korifiv1alpha1.CFProcess{},
	}
	for _, step := range []func(context.Context, *route.Observed) error{c.observeAddress, c.observeApps, c.observeOwned} {
		if err := step(ctx, &seen); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// observeAddress finds the domain, and the older route that has reserved the host or the same host and path. The result
// depends on creation timestamps, not on the order in which a cache has received the routes.
func (c Controller) observeAddress(ctx context.Context, seen *route.Observed) error {
	ref := seen.Route.Spec.DomainRef
	var domain korifiv1alpha1.CFDomain
	err := c.client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &domain)
	if k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the domain: %w", err)
	}
	var domains korifiv1alpha1.CFDomainList
	if err := c.client.List(ctx, &domains); err != nil {
		return fmt.Errorf("list domains: %w", err)
	}
	if slices.ContainsFunc(domains.Items, func(d korifiv1alpha1.CFDomain) bool {
		return d.Spec.Name == domain.Spec.Name && revision.CompareByAge(&d, &domain) < 0
	}) {
		return nil
	}
	seen.Domain = &domain
	var routes korifiv1alpha1.CFRouteList
	if err := c.client.List(ctx, &routes, client.MatchingFields{byHost: hostOfObject(seen.Route)}); err != nil {
		return fmt.Errorf("list routes of the host: %w", err)
	}
	ofHost := make([]*korifiv1alpha1.CFRoute, len(routes.Items))
	for i := range routes.Items {
		ofHost[i] = &routes.Items[i]
	}
	if holder := route.FindHolder(seen.Route, ofHost); holder != nil {
		seen.Holder = keyOfObject(holder)
	}
	return nil
}

func (c Controller) observeApps(ctx context.Context, seen *route.Observed) error {
	now := c.Clock.Now()
	for _, d := range seen.Route.Spec.Destinations {
		if seen.Apps[d.AppRef.Name] != nil {
			continue
		}
		var app korifiv1alpha1.CFApp
		err := c.client.Get(ctx, client.ObjectKey{Namespace: seen.Route.Namespace, Name: d.AppRef.Name}, &app)
		if k8serrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the app: %w", err)
		}
		seen.Apps[app.Name] = process.ApplyScheduled(&app, now)
		if end := stoprecord.ScheduledEnd(app.Status.ScheduledStops, app.Annotations, now); !end.IsZero() && (seen.StopEnd.IsZero() || end.Before(seen.StopEnd)) {
			seen.StopEnd = end
		}
		var list korifiv1alpha1.CFProcessList
		if err := c.client.List(ctx, &list, client.MatchingFields{byAppOfProcess: keyOfObject(&app)}); err != nil {
			return fmt.Errorf("list processes of the app: %w", err)
		}
		for processType, p := range revision.FindOldestProcesses(list.Items) {
			seen.Processes[route.ProcessKey(app.Name, processType)] = p
		}
	}
	return nil
}

func (c Controller) observeOwned(ctx context.Context, seen *route.Observed) error {
	var services corev1.ServiceList
	if err := c.owned.List(ctx, &services, client.InNamespace(seen.Route.Namespace), client.MatchingLabels{korifiv1alpha1.RouteGUIDLabel: seen.Route.Name}); err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	seen.Services = services.Items
	published := c.publishedKind()
	err := c.owned.Get(ctx, client.ObjectKeyFromObject(seen.Route), published)
	if k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the published objects: %w", err)
	}
	switch published := published.(type) {
	case *gatewayv1.HTTPRoute:
		seen.HTTPRoute = published
	case *networkingv1.Ingress:
		seen.Ingress = published
	}
	return nil
}

// scheduledStopsChanged selects changes to the stops that Slumbers request for an app, and to the app's exemption from
// them. A stopped app receives no requests while another destination runs.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(app *korifiv1alpha1.CFApp) any {
		return []any{stoprecord.ListScheduled(app.Status.ScheduledStops, app.Annotations), app.Annotations[torporv1alpha1.SkipUntilAnnotation]}
	})
}

func keyOfObject(o client.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func indexRoutes(valueOf func(*korifiv1alpha1.CFRoute) []string) client.IndexerFunc {
	return func(o client.Object) []string {
		if r, ok := o.(*korifiv1alpha1.CFRoute); ok {
			return valueOf(r)
		}
		return nil
	}
}

func hostOf(r *korifiv1alpha1.CFRoute) []string { return []string{hostOfObject(r)} }

func hostOfObject(o client.Object) string {
	r, ok := o.(*korifiv1alpha1.CFRoute)
	if !ok {
		return ""
	}
	return route.HostKey(r.Spec)
}

func domainOf(r *korifiv1alpha1.CFRoute) []string {
	return []string{r.Spec.DomainRef.Namespace + "/" + r.Spec.DomainRef.Name}
}

func appsOf(r *korifiv1alpha1.CFRoute) []string {
	var all []string
	for _, d := range r.Spec.Destinations {
		all = append(all, r.Namespace+"/"+d.AppRef.Name)
	}
	return all
}

func appOfProcess(o client.Object) string {
	p, ok := o.(*korifiv1alpha1.CFProcess)
	if !ok {
		return ""
	}
	return p.Namespace + "/" + p.Spec.AppRef.Name
}

func addressChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(r *korifiv1alpha1.CFRoute) any { return route.HostKey(r.Spec) + r.Spec.Path })
}
