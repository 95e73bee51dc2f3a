// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cf/route"
)

func listApps(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	apps, err := r.Store.ListApps(spaces)
	if err != nil {
		return Response{}, err
	}
	response, err := respondList(r, resourceList[*korifiv1alpha1.CFApp]{
		items: apps,
		filters: map[string]func(*korifiv1alpha1.CFApp) string{
			"names": func(app *korifiv1alpha1.CFApp) string { return app.Spec.DisplayName },
			"guids": func(app *korifiv1alpha1.CFApp) string { return app.Name },
		},
		compare: compareAppsBy(strings.TrimPrefix(r.query().Get("order_by"), "-")), reversed: r.isReversed(),
	}, func(app *korifiv1alpha1.CFApp) presenter.AppResponse { return presenter.ForApp(r.Base, app) })
	if err != nil || len(spaces) > 0 {
		return response, err
	}
	response.Warnings, err = r.warnWithoutRoles(ctx)
	return response, err
}

// compareAppsBy orders apps by name or state, and then by age. For any other field it orders them only by age.
func compareAppsBy(field string) func(a, b *korifiv1alpha1.CFApp) int {
	return func(a, b *korifiv1alpha1.CFApp) int {
		order := 0
		switch field {
		case "name":
			order = cmp.Compare(a.Spec.DisplayName, b.Spec.DisplayName)
		case "state":
			order = cmp.Compare(a.Spec.DesiredState, b.Spec.DesiredState)
		}
		if order != 0 {
			return order
		}
		return revision.CompareByAge(a, b)
	}
}

func getApp(_ context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	return present(r, presenter.ForApp, app, nil)
}

func createApp(ctx context.Context, r *Request, body payloads.AppBody) (Response, error) {
	space := body.Relationships.Space.Data.GUID
	if err := r.requireSpace(ctx, space); err != nil {
		return Response{}, err
	}
	if err := cmp.Or(payloads.CheckAppName(body.Name), body.Metadata.Validate(), requireOwnNames(body.EnvironmentVariables)); err != nil {
		return Response{}, err
	}
	message := repositories.CreateAppMessage{
		Name: body.Name, Space: space, Metadata: body.Metadata, Environment: body.EnvironmentVariables,
		Lifecycle: korifiv1alpha1.Lifecycle{
			Type: korifiv1alpha1.LifecycleType(cmp.Or(body.Lifecycle.Type, string(korifiv1alpha1.BuildpackLifecycle))),
			Data: korifiv1alpha1.LifecycleData{Buildpacks: body.Lifecycle.Data.Buildpacks, Stack: body.Lifecycle.Data.Stack},
		},
	}
	app, err := r.Store.CreateApp(ctx, r.Caller, message)
	return presentCreated(r, presenter.ForApp, app, err)
}

func updateApp(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	var body payloads.AppBody
	if err := payloads.DecodeJSON(r.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	if found := body.Lifecycle.Type; found != "" && found != string(app.Spec.Lifecycle.Type) {
		return Response{}, apierrors.NewUnprocessableEntity("expected the lifecycle " + string(app.Spec.Lifecycle.Type) + ", found " + found + ": the lifecycle of an app cannot change; create another app")
	}
	if app.Spec.Lifecycle.Type == korifiv1alpha1.DockerLifecycle && len(body.Lifecycle.Data.Buildpacks) > 0 {
		return Response{}, apierrors.NewUnprocessableEntity("expected no buildpacks, because the lifecycle of the app is docker; found buildpacks; remove them, or create another app")
	}
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	app, err := r.Store.UpdateApp(ctx, r.Caller, app, body.Name, body.Metadata)
	if err == nil {
		app, err = r.Store.SetBuildpacks(ctx, r.Caller, app, korifiv1alpha1.LifecycleData{Buildpacks: body.Lifecycle.Data.Buildpacks, Stack: body.Lifecycle.Data.Stack})
	}
	return present(r, presenter.ForApp, app, err)
}

func deleteApp(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	return r.accepted(deleteAppJob+app.Name, r.Store.DeleteApp(ctx, r.Caller, app))
}

func stopApp(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	// After stopping an app, the client no longer waits for it to start.
	r.Polls.Stop(r.Caller.Name, app.Name)
	app, err := r.Store.SetAppState(ctx, r.Caller, app, korifiv1alpha1.StoppedState)
	return present(r, presenter.ForApp, app, err)
}

func startApp(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	return r.bringUp(app, func() (*korifiv1alpha1.CFApp, error) {
		return r.Store.SetAppState(ctx, r.Caller, app, korifiv1alpha1.StartedState)
	})
}

func restartApp(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	return r.bringUp(app, func() (*korifiv1alpha1.CFApp, error) { return r.Store.RestartApp(ctx, r.Caller, app) })
}

// bringUp starts or restarts an app. Afterwards, the client usually polls until the app runs.
func (r *Request) bringUp(app *korifiv1alpha1.CFApp, do func() (*korifiv1alpha1.CFApp, error)) (Response, error) {
	if app.Spec.CurrentDropletRef == nil {
		return Response{}, apierrors.NewUnprocessableEntity("Assign a droplet before starting this app.")
	}
	started, err := do()
	if err == nil {
		r.Polls.StartTracking(r.Caller.Name, app.Name)
	}
	return present(r, presenter.ForApp, started, err)
}

func getAppEnvironment(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	vars, err := r.Store.GetEnvironment(ctx, r.Caller, app)
	if err != nil {
		return Response{}, err
	}
	application, err := r.describeApplication(ctx, app)
	if err != nil {
		return Response{}, err
	}
	services, err := r.describeServices(ctx, app)
	empty := map[string]string{}
	return respond(map[string]any{
		"environment_variables": vars, "staging_env_json": empty, "running_env_json": empty, "system_env_json": services,
		"application_env_json": map[string]any{"VCAP_APPLICATION": application},
	}, err)
}

// describeApplication returns VCAP_APPLICATION from the app's current settings and routes, with the current revision as
// its version. Running instances may still have earlier values.
func (r *Request) describeApplication(ctx context.Context, app *korifiv1alpha1.CFApp) (map[string]any, error) {
	current, _, _ := revision.ReadRevision(app)
	info := lrp.ApplicationInfo{GUID: app.Name, Name: app.Spec.DisplayName, Revision: revision.FormatRevision(current), SpaceGUID: app.Namespace}
	space, org, err := r.Store.DescribeSpace(ctx, app.Namespace)
	if err != nil {
		return nil, err
	}
	info.SpaceName, info.OrgGUID, info.OrgName = space.Name, org.GUID, org.Name
	web, err := r.Store.GetProcessByType(ctx, app, korifiv1alpha1.WebProcess)
	if err == nil {
		info.MemoryMB, info.DiskMB = process.LimitMegabytes(web.Spec.MemoryMB), process.LimitMegabytes(web.Spec.DiskQuotaMB)
	}
	if ignoreNotFound(err) != nil {
		return nil, err
	}
	routes, err := r.routesOfApp(ctx, app)
	if err != nil {
		return nil, err
	}
	domains, err := r.Store.ListDomains(ctx)
	for _, obj := range routes {
		if i := slices.IndexFunc(domains, func(d *korifiv1alpha1.CFDomain) bool { return d.Name == obj.Spec.DomainRef.Name }); i >= 0 {
			info.Addresses = append(info.Addresses, route.FQDN(obj.Spec, domains[i])+obj.Spec.Path)
		}
	}
	slices.Sort(info.Addresses)
	application := info.VCAPApplication()
	application["cf_api"] = r.Base
	return application, err
}

func getEnvVars(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	vars, err := r.Store.GetEnvironment(ctx, r.Caller, app)
	return respond(map[string]any{"var": vars, "links": presenter.Links{}}, err)
}

func updateEnvVars(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	var body payloads.EnvVarsPatch
	if err := payloads.DecodeJSON(r.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	if err := requireOwnNames(body.Var); err != nil {
		return Response{}, err
	}
	if err := r.Store.SetEnvironment(ctx, r.Caller, app, body.Var); err != nil {
		return Response{}, err
	}
	// The first variable also sets the name of the environment Secret in the app's spec, so the app is read again.
	return withApp(getEnvVars)(ctx, r)
}

// requireOwnNames rejects environment variables with reserved names.
func requireOwnNames[Value any](variables map[string]Value) error {
	if name, isFound := payloads.FindReservedVariable(variables); isFound {
		return apierrors.NewUnprocessableEntity("expected an environment variable without a reserved name, found '" + name + "'; choose another name")
	}
	return nil
}
