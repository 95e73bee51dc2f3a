// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// maxDestinations is the maximum number of destinations of a route in the CFRoute schema.
const maxDestinations = 100

func listDomains(ctx context.Context, r *Request) (Response, error) {
	domains, err := r.Store.ListDomains(ctx)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFDomain]{
		items: domains,
		filters: map[string]func(*korifiv1alpha1.CFDomain) string{
			"names": func(d *korifiv1alpha1.CFDomain) string { return d.Spec.Name },
			"guids": func(d *korifiv1alpha1.CFDomain) string { return d.Name },
		},
	}, func(d *korifiv1alpha1.CFDomain) presenter.DomainResponse { return presenter.ForDomain(r.Base, d) })
}

func getDomain(ctx context.Context, r *Request) (Response, error) {
	domain, err := r.Store.GetDomain(ctx, r.guid())
	return present(r, presenter.ForDomain, domain, err)
}

// getDefaultDomain returns the domain of routes that do not specify one.
func getDefaultDomain(ctx context.Context, r *Request) (Response, error) {
	domains, err := r.Store.ListDomains(ctx)
	if err == nil && len(domains) == 0 {
		err = apierrors.NewNotFound(repositories.DomainResourceType)
	}
	if err != nil {
		return Response{}, err
	}
	return present(r, presenter.ForDomain, domains[0], nil)
}

func createDomain(ctx context.Context, r *Request, body payloads.DomainCreate) (Response, error) {
	domains, err := r.Store.ListDomains(ctx)
	if err == nil {
		err = body.Validate()
	}
	if err != nil {
		return Response{}, err
	}
	if slices.ContainsFunc(domains, func(d *korifiv1alpha1.CFDomain) bool { return d.Spec.Name == body.Name }) {
		return Response{}, apierrors.NewUnprocessableEntity("The domain name \"" + body.Name + "\" is already in use")
	}
	domain, err := r.Store.CreateDomain(ctx, r.Caller, body.Name, body.Metadata)
	return presentCreated(r, presenter.ForDomain, domain, err)
}

// deleteDomain deletes a domain and its routes. It deletes the routes first, so an interrupted request can be repeated.
func deleteDomain(ctx context.Context, r *Request) (Response, error) {
	domain, err := r.Store.GetDomain(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	if err := r.Store.DeleteRoutesOfDomain(ctx, r.Caller, domain); err != nil {
		return Response{}, err
	}
	return r.accepted(deleteDomainJob+domain.Name, r.Store.DeleteDomain(ctx, r.Caller, domain))
}

// getRouteReservation reports whether the space that owns the given host has a route with the given path.
func getRouteReservation(ctx context.Context, r *Request) (Response, error) {
	domain, err := r.Store.GetDomain(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	found, _, err := r.Store.FindRoute(ctx, repositories.NewRouteSpec(domain, r.query().Get("host"), r.query().Get("path")))
	return respond(map[string]bool{"matching_route": found != nil}, err)
}

func listRoutes(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.spacesOfApps(ctx, "app_guids")
	if err != nil {
		return Response{}, err
	}
	all, err := r.Store.ListRoutes(ctx, spaces)
	if err != nil {
		return Response{}, err
	}
	if apps := payloads.ParseFilter(r.query(), "app_guids"); apps != nil {
		all = slices.DeleteFunc(all, func(obj *korifiv1alpha1.CFRoute) bool {
			return !slices.ContainsFunc(obj.Spec.Destinations, func(d korifiv1alpha1.RouteDestination) bool { return apps.Matches(d.AppRef.Name) })
		})
	}
	return r.respondRoutes(ctx, all)
}

func listAppRoutes(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	all, err := r.routesOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return r.respondRoutes(ctx, all)
}

// routesOfApp returns the routes in an app's space that have the app as a destination.
func (r *Request) routesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFRoute, error) {
	all, err := r.Store.ListRoutes(ctx, []string{app.Namespace})
	return slices.DeleteFunc(all, func(obj *korifiv1alpha1.CFRoute) bool { return indexOfApp(obj, app) < 0 }), err
}

func indexOfApp(obj *korifiv1alpha1.CFRoute, app *korifiv1alpha1.CFApp) int {
	return slices.IndexFunc(obj.Spec.Destinations, func(d korifiv1alpha1.RouteDestination) bool { return d.AppRef.Name == app.Name })
}

// withDomains pairs routes with their domains.
func (r *Request) withDomains(ctx context.Context, routes []*korifiv1alpha1.CFRoute) ([]presenter.RouteWithDomain, error) {
	domains, err := r.Store.ListDomains(ctx)
	byName := map[string]*korifiv1alpha1.CFDomain{}
	for _, d := range domains {
		byName[d.Name] = d
	}
	all := make([]presenter.RouteWithDomain, len(routes))
	for i, obj := range routes {
		all[i] = presenter.RouteWithDomain{Route: obj, Domain: byName[obj.Spec.DomainRef.Name]}
	}
	return all, err
}

func (r *Request) respondRoutes(ctx context.Context, routes []*korifiv1alpha1.CFRoute) (Response, error) {
	if hosts := payloads.ParseFilter(r.query(), "hosts"); hosts != nil {
		routes = slices.DeleteFunc(routes, func(obj *korifiv1alpha1.CFRoute) bool {
			return !slices.ContainsFunc(hosts, func(host string) bool { return strings.EqualFold(host, obj.Spec.Host) })
		})
	}
	all, err := r.withDomains(ctx, routes)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[presenter.RouteWithDomain]{
		items: all,
		filters: map[string]func(presenter.RouteWithDomain) string{
			"guids":        func(one presenter.RouteWithDomain) string { return one.Route.Name },
			"paths":        func(one presenter.RouteWithDomain) string { return one.Route.Spec.Path },
			"domain_guids": func(one presenter.RouteWithDomain) string { return one.Route.Spec.DomainRef.Name },
			"ports":        func(presenter.RouteWithDomain) string { return "" },
		},
		labelsOf: func(one presenter.RouteWithDomain) map[string]string { return payloads.OwnKeys(one.Route.Labels) },
	}, func(one presenter.RouteWithDomain) presenter.RouteResponse { return presenter.ForRoute(r.Base, one) })
}

// presentRoute responds with a route, or with the error from reading it.
func (r *Request) presentRoute(ctx context.Context, status int, obj *korifiv1alpha1.CFRoute, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	domain, err := r.Store.GetDomain(ctx, obj.Spec.DomainRef.Name)
	if ignoreNotFound(err) != nil {
		return Response{}, err
	}
	return Response{Status: status, Body: presenter.ForRoute(r.Base, presenter.RouteWithDomain{Route: obj, Domain: domain})}, nil
}

func getRoute(ctx context.Context, r *Request) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	return r.presentRoute(ctx, http.StatusOK, obj, err)
}

func createRoute(ctx context.Context, r *Request, body payloads.RouteCreate) (Response, error) {
	space := body.Relationships.Space.Data.GUID
	if err := r.requireSpace(ctx, space); err != nil {
		return Response{}, err
	}
	domain, err := r.Store.GetDomain(ctx, body.Relationships.Domain.Data.GUID)
	if err != nil {
		return Response{}, apierrors.NewUnprocessableEntity("Invalid domain. Ensure that the domain exists and you have access to it.")
	}
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	if body.Port != nil {
		return Response{}, apierrors.NewUnprocessableEntity("expected no port, because all routes are HTTP routes; remove the port")
	}
	obj, err := r.Store.CreateRoute(ctx, r.Caller, space, repositories.NewRouteSpec(domain, body.Host, body.Path), body.Metadata)
	return r.presentRoute(ctx, http.StatusCreated, obj, err)
}

func updateRoute(ctx context.Context, r *Request, body payloads.MetadataUpdate) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	if err == nil {
		obj, err = changeMetadata(ctx, r, obj, body)
	}
	return r.presentRoute(ctx, http.StatusOK, obj, err)
}

func deleteRoute(ctx context.Context, r *Request) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	return r.accepted(deleteRouteJob+obj.Name, r.Store.DeleteRoute(ctx, r.Caller, obj))
}

// deleteUnmappedRoutes deletes all routes without destinations in a space before it responds.
func deleteUnmappedRoutes(ctx context.Context, r *Request) (Response, error) {
	if found := r.query().Get("unmapped"); found != "true" {
		return Response{}, apierrors.NewUnprocessableEntity("expected the query parameter unmapped=true, because only routes without destinations can be deleted together; found " + strconv.Quote(found) + "; add the parameter")
	}
	if _, err := r.getSpace(ctx, r.guid()); err != nil {
		return Response{}, err
	}
	routes, err := r.Store.ListRoutes(ctx, []string{r.guid()})
	if err != nil {
		return Response{}, err
	}
	for _, obj := range routes {
		if err := r.Store.DeleteUnmappedRoute(ctx, r.Caller, obj); err != nil {
			return Response{}, err
		}
	}
	return r.accepted(deleteUnmappedRoutesJob+r.guid(), nil)
}

func listDestinations(ctx context.Context, r *Request) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	return present(r, presenter.ForDestinations, obj, err)
}

// addDestinations adds missing destinations to a route. replaceDestinations also removes all other destinations.
func addDestinations(ctx context.Context, r *Request, body payloads.Destinations) (Response, error) {
	return r.changeDestinations(ctx, body, false)
}

func replaceDestinations(ctx context.Context, r *Request, body payloads.Destinations) (Response, error) {
	return r.changeDestinations(ctx, body, true)
}

func (r *Request) changeDestinations(ctx context.Context, body payloads.Destinations, replaces bool) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	wanted, err := r.parseDestinations(ctx, obj.Namespace, body)
	if err != nil {
		return Response{}, err
	}
	if len(wanted) > maxDestinations || !replaces && len(wanted)+len(obj.Spec.Destinations) > maxDestinations {
		return Response{}, apierrors.NewUnprocessableEntity("expected at most 100 destinations of a route, found more; create another route")
	}
	obj, err = r.Store.ChangeDestinations(ctx, r.Caller, obj, func(all []korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination {
		return mergeDestinations(all, wanted, replaces)
	})
	return present(r, presenter.ForDestinations, obj, err)
}

// mergeDestinations returns the wanted destinations and, unless replaces is set, the existing ones. Existing
// destinations keep their GUIDs. The name of a destination's Service contains its GUID, so a new GUID would replace a
// Service that is in use.
func mergeDestinations(before, wanted []korifiv1alpha1.RouteDestination, replaces bool) []korifiv1alpha1.RouteDestination {
	all := before
	if replaces {
		all = nil
	}
	for _, one := range wanted {
		if i := indexOfDestination(before, one); i >= 0 && indexOfDestination(all, one) < 0 {
			all = append(all, before[i])
			continue
		}
		all = withDestination(all, one)
	}
	return all
}

// parseDestinations returns the destinations in a request. An app in another space causes the error for a missing app.
func (r *Request) parseDestinations(ctx context.Context, space string, body payloads.Destinations) ([]korifiv1alpha1.RouteDestination, error) {
	var all []korifiv1alpha1.RouteDestination
	for _, wanted := range body.Destinations {
		if err := wanted.Validate(); err != nil {
			return nil, err
		}
		app, err := r.Store.GetAppInSpace(ctx, r.Caller, space, wanted.App.GUID)
		if err != nil {
			return nil, apierrors.NewUnprocessableEntity("App(s) with guid(s) \"" + wanted.App.GUID + "\" do not exist or you do not have access; a route and its apps are in one space")
		}
		all = append(all, korifiv1alpha1.RouteDestination{AppRef: corev1.LocalObjectReference{Name: app.Name}, ProcessType: wanted.ProcessType(), Port: wanted.Port})
	}
	return all, nil
}

// withDestination adds a destination unless the list contains it.
func withDestination(all []korifiv1alpha1.RouteDestination, one korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination {
	if indexOfDestination(all, one) >= 0 {
		return all
	}
	one.GUID, one.Protocol = uuid.NewString(), korifiv1alpha1.HTTP1DestinationProtocol
	return append(all, one)
}

// indexOfDestination finds a destination by app, process type and port. It returns -1 if the list does not contain it.
// It ignores GUIDs. It also ignores the protocol, because Torpor supports only one.
func indexOfDestination(all []korifiv1alpha1.RouteDestination, one korifiv1alpha1.RouteDestination) int {
	return slices.IndexFunc(all, func(d korifiv1alpha1.RouteDestination) bool {
		return d.AppRef == one.AppRef && d.ProcessType == one.ProcessType && d.Port == one.Port
	})
}

func deleteDestination(ctx context.Context, r *Request) (Response, error) {
	obj, err := r.Store.GetRoute(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	isMeant := func(d korifiv1alpha1.RouteDestination) bool { return d.GUID == r.HTTP.PathValue("destination") }
	if !slices.ContainsFunc(obj.Spec.Destinations, isMeant) {
		return Response{}, apierrors.NewUnprocessableEntity("Unable to unmap route from destination. Ensure the route has a destination with this guid.")
	}
	_, err = r.Store.ChangeDestinations(ctx, r.Caller, obj, func(all []korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination {
		return slices.DeleteFunc(all, isMeant)
	})
	return Response{Status: http.StatusNoContent}, err
}
