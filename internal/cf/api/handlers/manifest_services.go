// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// findServices returns the services of a manifest's app in the order of the manifest.
func (r *Request) findServices(ctx context.Context, wanted payloads.ManifestApp) ([]*korifiv1alpha1.CFServiceInstance, error) {
	if len(wanted.Services) == 0 {
		return nil, nil
	}
	all, err := r.Store.ListServiceInstances(ctx, []string{r.guid()})
	if err != nil {
		return nil, err
	}
	found := make([]*korifiv1alpha1.CFServiceInstance, len(wanted.Services))
	for i, service := range wanted.Services {
		at := slices.IndexFunc(all, func(s *korifiv1alpha1.CFServiceInstance) bool { return s.Spec.DisplayName == service.Name })
		if at < 0 {
			return nil, apierrors.NewUnprocessableEntity("For application '" + wanted.Name + "': expected a service instance '" + service.Name + "' in the space, found none; create it with cf create-user-provided-service")
		}
		found[i] = all[at]
	}
	return found, nil
}

// bindServices binds the services in a manifest to an app. It keeps the app's other bindings, as Cloud Controller does.
func (r *Request) bindServices(ctx context.Context, app *korifiv1alpha1.CFApp, wanted payloads.ManifestApp, services []*korifiv1alpha1.CFServiceInstance) error {
	if len(services) == 0 {
		return nil
	}
	bound, err := r.servicesOfApp(ctx, app)
	if err != nil {
		return err
	}
	for i, service := range services {
		if slices.Contains(bound, service.Name) {
			continue
		}
		if _, err := r.Store.CreateServiceBinding(ctx, r.Caller, app, repositories.CreateBindingMessage{Instance: service, Name: wanted.Services[i].BindingName}); err != nil {
			return err
		}
	}
	return nil
}

// servicesOfApp returns the GUIDs of the services bound to an app.
func (r *Request) servicesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]string, error) {
	bindings, err := r.Store.ListServiceBindings(ctx, []string{app.Namespace})
	var all []string
	for _, b := range bindings {
		if b.Spec.AppRef.Name == app.Name {
			all = append(all, b.Spec.Service.Name)
		}
	}
	return all, err
}

// serviceNamesOfApp returns the names of the services bound to an app, for the app's manifest.
func (r *Request) serviceNamesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]string, error) {
	bound, err := r.servicesOfApp(ctx, app)
	if err != nil || len(bound) == 0 {
		return nil, err
	}
	all, err := r.Store.ListServiceInstances(ctx, []string{app.Namespace})
	var names []string
	for _, service := range all {
		if slices.Contains(bound, service.Name) {
			names = append(names, service.Spec.DisplayName)
		}
	}
	return names, err
}
