// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/appenvironment"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/route"
)

// readSurroundings reads the space and the routes of an app from the cache. A namespace without a CFSpace counts as a
// space with the namespace's name. Cached spaces, orgs and domains are not copied, because the lists contain the
// objects of all spaces and are only searched.
func (c Controller) readSurroundings(ctx context.Context, app *korifiv1alpha1.CFApp) (process.Surroundings, error) {
	found := process.Surroundings{SpaceName: app.Namespace}
	var spaces korifiv1alpha1.CFSpaceList
	var orgs korifiv1alpha1.CFOrgList
	if err := appenvironment.ListServed(ctx, c.client, &spaces, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list spaces: %w", err)
	}
	if i := slices.IndexFunc(spaces.Items, func(s korifiv1alpha1.CFSpace) bool { return s.Name == app.Namespace }); i >= 0 {
		found.SpaceName, found.OrgGUID = spaces.Items[i].Spec.DisplayName, spaces.Items[i].Namespace
	}
	if err := appenvironment.ListServed(ctx, c.client, &orgs, client.UnsafeDisableDeepCopy); err != nil {
		return found, fmt.Errorf("list orgs: %w", err)
	}
	if i := slices.IndexFunc(orgs.Items, func(o korifiv1alpha1.CFOrg) bool { return o.Name == found.OrgGUID }); i >= 0 {
		found.OrgName = orgs.Items[i].Spec.DisplayName
	}
	var err error
	found.Addresses, err = c.listAddresses(ctx, app)
	return found, err
}

// listAddresses returns the sorted URIs of the routes to an app.
func (c Controller) listAddresses(ctx context.Context, app *korifiv1alpha1.CFApp) ([]string, error) {
	var routes korifiv1alpha1.CFRouteList
	var domains korifiv1alpha1.CFDomainList
	if err := appenvironment.ListServed(ctx, c.client, &routes, client.InNamespace(app.Namespace)); err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	leadsElsewhere := func(r korifiv1alpha1.CFRoute) bool {
		return !slices.ContainsFunc(r.Spec.Destinations, func(d korifiv1alpha1.RouteDestination) bool { return d.AppRef.Name == app.Name })
	}
	if routes.Items = slices.DeleteFunc(routes.Items, leadsElsewhere); len(routes.Items) == 0 {
		return nil, nil
	}
	if err := appenvironment.ListServed(ctx, c.client, &domains, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	var addresses []string
	for i := range routes.Items {
		ref := routes.Items[i].Spec.DomainRef
		for d := range domains.Items {
			if domains.Items[d].Name == ref.Name && domains.Items[d].Namespace == ref.Namespace {
				addresses = append(addresses, route.FQDN(routes.Items[i].Spec, &domains.Items[d])+routes.Items[i].Spec.Path)
			}
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}
