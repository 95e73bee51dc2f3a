// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

func listServiceInstances(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := r.Store.ListServiceInstances(ctx, spaces)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFServiceInstance]{
		items: all,
		filters: map[string]func(*korifiv1alpha1.CFServiceInstance) string{
			"guids": func(s *korifiv1alpha1.CFServiceInstance) string { return s.Name },
			"names": func(s *korifiv1alpha1.CFServiceInstance) string { return s.Spec.DisplayName },
			"type":  func(s *korifiv1alpha1.CFServiceInstance) string { return string(s.Spec.Type) },
		},
		compare: func(a, b *korifiv1alpha1.CFServiceInstance) int {
			return cmp.Or(cmp.Compare(a.Spec.DisplayName, b.Spec.DisplayName), revision.CompareByAge(a, b))
		},
	}, func(s *korifiv1alpha1.CFServiceInstance) presenter.ServiceInstanceResponse {
		return presenter.ForServiceInstance(r.Base, s)
	})
}

func getServiceInstance(ctx context.Context, r *Request) (Response, error) {
	instance, err := r.Store.GetServiceInstance(ctx, r.Caller, r.guid())
	return present(r, presenter.ForServiceInstance, instance, err)
}

func getServiceCredentials(ctx context.Context, r *Request) (Response, error) {
	instance, err := r.Store.GetServiceInstance(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	credentials, err := r.Store.GetCredentials(ctx, r.Caller, instance)
	return respond(credentials, err)
}

func createServiceInstance(ctx context.Context, r *Request, body payloads.ServiceInstanceBody) (Response, error) {
	space := body.Relationships.Space.Data.GUID
	err := body.Validate()
	if err == nil && body.Name == "" {
		err = apierrors.NewUnprocessableEntity("expected a name for the service instance, found none; set name")
	}
	if err == nil {
		err = r.requireSpace(ctx, space)
	}
	if err != nil {
		return Response{}, err
	}
	all, err := r.Store.ListServiceInstances(ctx, []string{space})
	if err != nil {
		return Response{}, err
	}
	if err := requireFreeName(all, body.Name); err != nil {
		return Response{}, err
	}
	made, err := r.Store.CreateServiceInstance(ctx, r.Caller, repositories.CreateServiceMessage{
		Space: space, Name: body.Name, Tags: body.Tags, Credentials: credentialsOf(body, json.RawMessage("{}")), Metadata: body.Metadata,
	})
	return presentCreated(r, presenter.ForServiceInstance, made, err)
}

// credentialsOf returns the credentials in a request body. If there are none, it returns the argument without.
func credentialsOf(body payloads.ServiceInstanceBody, without json.RawMessage) json.RawMessage {
	if len(body.Credentials) == 0 || string(body.Credentials) == "null" {
		return without
	}
	return body.Credentials
}

// requireFreeName returns an error if another service in the space has the name.
func requireFreeName(others []*korifiv1alpha1.CFServiceInstance, name string) error {
	if !slices.ContainsFunc(others, func(s *korifiv1alpha1.CFServiceInstance) bool { return s.Spec.DisplayName == name }) {
		return nil
	}
	return apierrors.NewUnprocessableEntity("The service instance name is taken: " + name + ".")
}

func updateServiceInstance(ctx context.Context, r *Request, body payloads.ServiceInstanceBody) (Response, error) {
	instance, err := r.Store.GetServiceInstance(ctx, r.Caller, r.guid())
	if err == nil {
		err = body.Validate()
	}
	if err != nil {
		return Response{}, err
	}
	if body.Name != "" && body.Name != instance.Spec.DisplayName {
		others, err := r.Store.ListServiceInstances(ctx, []string{instance.Namespace})
		if err == nil {
			err = requireFreeName(others, body.Name)
		}
		if err != nil {
			return Response{}, err
		}
	}
	changed, err := r.Store.UpdateServiceInstance(ctx, r.Caller, instance, repositories.UpdateServiceMessage{
		Name: body.Name, Tags: body.Tags, Credentials: credentialsOf(body, nil), Metadata: body.Metadata,
	})
	return present(r, presenter.ForServiceInstance, changed, err)
}

func deleteServiceInstance(ctx context.Context, r *Request) (Response, error) {
	instance, err := r.Store.GetServiceInstance(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	bindings, err := r.Store.ListServiceBindings(ctx, []string{instance.Namespace})
	if err != nil {
		return Response{}, err
	}
	if slices.ContainsFunc(bindings, func(b *korifiv1alpha1.CFServiceBinding) bool { return b.Spec.Service.Name == instance.Name }) {
		return Response{}, apierrors.NewUnprocessableEntity("expected a service without bindings, found some; unbind the service first")
	}
	return Response{Status: http.StatusNoContent}, r.Store.DeleteServiceInstance(ctx, r.Caller, instance)
}

func listServiceBindings(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	instances, err := r.Store.ListServiceInstances(ctx, spaces)
	if err != nil {
		return Response{}, err
	}
	names := map[string]string{}
	for _, s := range instances {
		names[s.Namespace+"/"+s.Name] = s.Spec.DisplayName
	}
	all, err := r.Store.ListServiceBindings(ctx, spaces)
	if err != nil {
		return Response{}, err
	}
	response, err := respondList(r, resourceList[*korifiv1alpha1.CFServiceBinding]{
		items: all,
		filters: map[string]func(*korifiv1alpha1.CFServiceBinding) string{
			"guids":                  func(b *korifiv1alpha1.CFServiceBinding) string { return b.Name },
			"names":                  func(b *korifiv1alpha1.CFServiceBinding) string { return b.Spec.DisplayName },
			"type":                   func(*korifiv1alpha1.CFServiceBinding) string { return "app" },
			"app_guids":              func(b *korifiv1alpha1.CFServiceBinding) string { return b.Spec.AppRef.Name },
			"service_instance_guids": func(b *korifiv1alpha1.CFServiceBinding) string { return b.Spec.Service.Name },
			"service_instance_names": func(b *korifiv1alpha1.CFServiceBinding) string { return names[b.Namespace+"/"+b.Spec.Service.Name] },
		},
		reversed: r.isReversed(),
	}, func(b *korifiv1alpha1.CFServiceBinding) presenter.BindingResponse {
		return presenter.ForBinding(r.Base, b)
	})
	page, ok := response.Body.(presenter.ListResponse[presenter.BindingResponse])
	if !ok || !slices.Contains(payloads.ParseFilter(r.query(), "include"), "app") {
		return response, err
	}
	if page.Included, err = r.appsOfBindings(spaces, page.Resources); err != nil {
		return Response{}, err
	}
	response.Body = page
	return response, nil
}

// appsOfBindings returns the apps of the bindings without duplicates, for the included resources of a list.
func (r *Request) appsOfBindings(spaces []string, bindings []presenter.BindingResponse) (map[string]any, error) {
	all, err := r.Store.ListApps(spaces)
	bound := map[string]bool{}
	for _, b := range bindings {
		bound[b.Relationships["app"].Data.GUID] = true
	}
	apps := []presenter.AppResponse{}
	for _, app := range all {
		if bound[app.Name] {
			apps = append(apps, presenter.ForApp(r.Base, app))
		}
	}
	return map[string]any{"apps": apps}, err
}

func getServiceBinding(ctx context.Context, r *Request) (Response, error) {
	binding, err := r.Store.GetServiceBinding(ctx, r.Caller, r.guid())
	return present(r, presenter.ForBinding, binding, err)
}

func getServiceBindingDetails(ctx context.Context, r *Request) (Response, error) {
	binding, err := r.Store.GetServiceBinding(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	instance, err := r.Store.GetServiceInstanceInSpace(ctx, r.Caller, binding.Namespace, binding.Spec.Service.Name)
	if err != nil {
		return Response{}, err
	}
	credentials, err := r.Store.GetCredentials(ctx, r.Caller, instance)
	return respond(map[string]any{"credentials": credentials}, err)
}

func createServiceBinding(ctx context.Context, r *Request, body payloads.BindingCreate) (Response, error) {
	if body.Type != "app" {
		return Response{}, apierrors.NewUnprocessableEntity("expected the type app, found " + body.Type + "; service keys are not implemented")
	}
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	app, err := r.Store.GetApp(ctx, r.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	instance, err := r.serviceInstanceFor(ctx, app, body.Relationships.ServiceInstance.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	bindings, err := r.Store.ListServiceBindings(ctx, []string{app.Namespace})
	if err != nil {
		return Response{}, err
	}
	if slices.ContainsFunc(bindings, func(b *korifiv1alpha1.CFServiceBinding) bool {
		return b.Spec.Service.Name == instance.Name && b.Spec.AppRef.Name == app.Name
	}) {
		return Response{}, apierrors.NewUnprocessableEntity("The app is already bound to the service instance")
	}
	made, err := r.Store.CreateServiceBinding(ctx, r.Caller, app, repositories.CreateBindingMessage{Instance: instance, Name: body.Name, Metadata: body.Metadata})
	return presentCreated(r, presenter.ForBinding, made, err)
}

// serviceInstanceFor returns a service in the app's space. If the service exists only in another space, the error
// reports this.
func (r *Request) serviceInstanceFor(ctx context.Context, app *korifiv1alpha1.CFApp, guid string) (*korifiv1alpha1.CFServiceInstance, error) {
	instance, err := r.Store.GetServiceInstanceInSpace(ctx, r.Caller, app.Namespace, guid)
	if err == nil || ignoreNotFound(err) != nil {
		return instance, err
	}
	if _, err = r.Store.GetServiceInstance(ctx, r.Caller, guid); err == nil {
		err = apierrors.NewUnprocessableEntity("The service instance and the app are in different spaces")
	}
	return nil, err
}

func deleteServiceBinding(ctx context.Context, r *Request) (Response, error) {
	binding, err := r.Store.GetServiceBinding(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	return Response{Status: http.StatusNoContent}, r.Store.DeleteServiceBinding(ctx, r.Caller, binding)
}

// describeServices returns VCAP_SERVICES for the app's next revision, or no variable if no service is bound. It selects
// bindings and services as package appenvironment does.
func (r *Request) describeServices(ctx context.Context, app *korifiv1alpha1.CFApp) (map[string]json.RawMessage, error) {
	bindings, err := r.Store.ListServiceBindings(ctx, []string{app.Namespace})
	if err != nil {
		return nil, err
	}
	instances, err := r.Store.ListServiceInstances(ctx, []string{app.Namespace})
	if err != nil {
		return nil, err
	}
	var bound []process.BoundService
	for _, b := range bindings {
		at := slices.IndexFunc(instances, func(s *korifiv1alpha1.CFServiceInstance) bool { return s.Name == b.Spec.Service.Name })
		if !process.IsBound(app, b) || at < 0 || instances[at].Spec.Type != korifiv1alpha1.UserProvidedService {
			continue
		}
		credentials, err := r.Store.GetCredentials(ctx, r.Caller, instances[at])
		if err != nil {
			return nil, err
		}
		bound = append(bound, process.NewBoundService(instances[at], b, credentials))
	}
	if len(bound) == 0 {
		return map[string]json.RawMessage{}, nil
	}
	text, err := process.FormatServices(bound)
	return map[string]json.RawMessage{process.ServicesVariable: text}, err
}
