// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/route"
)

// maxHost is the maximum length of a DNS label. randomDigits is the number of random characters that distinguish the
// hosts of apps with the same name.
const (
	maxHost      = 63
	randomDigits = 8
)

// notInHosts matches the characters of an app name that are not allowed in a host.
var notInHosts = regexp.MustCompile(`[^a-z0-9-]+`)

// applyRoutes maps a manifest's routes to an app, or unmaps all routes. It returns a warning if the manifest requests a
// default or random route but no domain exists.
func (r *Request) applyRoutes(ctx context.Context, app *korifiv1alpha1.CFApp, wanted payloads.ManifestApp) (warning string, err error) {
	has, err := r.routesOfApp(ctx, app)
	if err != nil {
		return "", err
	}
	if wanted.NoRoute {
		return "", r.unmapRoutes(ctx, app, has)
	}
	domains, err := r.Store.ListDomains(ctx)
	if err != nil {
		return "", err
	}
	for _, address := range wanted.Routes {
		spec, err := findDomain(domains, address)
		if err == nil {
			err = r.mapRoute(ctx, app, spec)
		}
		if err != nil {
			return "", err
		}
	}
	if len(wanted.Routes) > 0 || len(has) > 0 || !wanted.RandomRoute && !wanted.DefaultRoute {
		return "", nil
	}
	if len(domains) == 0 {
		return fmt.Sprintf("App '%s' got no address, because the platform has no domain; ask the platform team for one.", wanted.Name), nil
	}
	return "", r.mapRoute(ctx, app, repositories.NewRouteSpec(domains[0], hostFor(wanted), ""))
}

// checkRoutes rejects routes that cannot be mapped to the app.
func (r *Request) checkRoutes(ctx context.Context, wanted payloads.ManifestApp) error {
	domains, err := r.Store.ListDomains(ctx)
	if err != nil {
		return err
	}
	for _, address := range wanted.Routes {
		spec, err := findDomain(domains, address)
		if err != nil {
			return err
		}
		_, holder, err := r.Store.FindRoute(ctx, spec)
		if err != nil {
			return err
		}
		if wrong := route.CheckAddress(spec); wrong != "" || holder != "" && holder != r.guid() {
			return apierrors.NewUnprocessableEntity(fmt.Sprintf("For application '%s': %s", wanted.Name, cmp.Or(wrong, repositories.HostReserved+": '"+address.Route+"'; choose another host")))
		}
	}
	return nil
}

// addressesOfApp returns the URLs of an app's routes in manifest form. It omits routes whose domain was deleted, because
// a manifest with such a route cannot be applied.
func (r *Request) addressesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]string, error) {
	routes, err := r.routesOfApp(ctx, app)
	if err != nil {
		return nil, err
	}
	withDomains, err := r.withDomains(ctx, routes)
	var all []string
	for _, one := range withDomains {
		if one.Domain != nil {
			all = append(all, one.FormatURL())
		}
	}
	return all, err
}

// hostFor derives a host from an app's name.
func hostFor(wanted payloads.ManifestApp) string {
	name := strings.Trim(notInHosts.ReplaceAllString(strings.ToLower(wanted.Name), "-"), "-")
	if !wanted.RandomRoute && name != "" {
		return strings.Trim(name[:min(len(name), maxHost)], "-")
	}
	return name[:min(len(name), maxHost-randomDigits-1)] + "-" + uuid.NewString()[:randomDigits]
}

// findDomain finds the domain that is a suffix of a manifest's route, and returns the spec of the route in that domain.
func findDomain(domains []*korifiv1alpha1.CFDomain, address payloads.ManifestRoute) (korifiv1alpha1.CFRouteSpec, error) {
	name, path := address.Split()
	for _, domain := range domains {
		if host, ok := strings.CutSuffix(name, "."+domain.Spec.Name); ok && !strings.Contains(host, ".") {
			return repositories.NewRouteSpec(domain, host, path), nil
		}
	}
	return korifiv1alpha1.CFRouteSpec{}, apierrors.NewUnprocessableEntity("The route '" + address.Route + "' did not match any existing domains.")
}

// mapRoute adds the app to the route with the given host and path. It creates the route if the app's space has none.
func (r *Request) mapRoute(ctx context.Context, app *korifiv1alpha1.CFApp, spec korifiv1alpha1.CFRouteSpec) error {
	obj, holder, err := r.Store.FindRoute(ctx, spec)
	if err != nil {
		return err
	}
	if obj == nil || holder != app.Namespace {
		if obj, err = r.Store.CreateRoute(ctx, r.Caller, app.Namespace, spec, nil); err != nil {
			return err
		}
	}
	if indexOfApp(obj, app) >= 0 {
		return nil
	}
	_, err = r.Store.ChangeDestinations(ctx, r.Caller, obj, func(all []korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination {
		return withDestination(all, korifiv1alpha1.RouteDestination{AppRef: corev1.LocalObjectReference{Name: app.Name}, ProcessType: korifiv1alpha1.WebProcess})
	})
	return err
}

func (r *Request) unmapRoutes(ctx context.Context, app *korifiv1alpha1.CFApp, routes []*korifiv1alpha1.CFRoute) error {
	for _, obj := range routes {
		_, err := r.Store.ChangeDestinations(ctx, r.Caller, obj, func(all []korifiv1alpha1.RouteDestination) []korifiv1alpha1.RouteDestination {
			return slices.DeleteFunc(all, func(d korifiv1alpha1.RouteDestination) bool { return d.AppRef.Name == app.Name })
		})
		if err != nil {
			return err
		}
	}
	return nil
}
