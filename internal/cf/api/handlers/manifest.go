// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strings"

	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// applyManifest applies the manifest before it responds, so the job in the response is already complete.
func applyManifest(ctx context.Context, r *Request) (Response, error) {
	manifest, err := r.parseManifest(ctx, func([]byte) bool { return false })
	if err != nil {
		return Response{}, err
	}
	// Applied changes are not rolled back, so all checks that may reject the manifest are made first.
	services := make([][]*korifiv1alpha1.CFServiceInstance, len(manifest.Applications))
	for i, wanted := range manifest.Applications {
		found, missing := r.findServices(ctx, wanted)
		services[i] = found
		if err := cmp.Or(r.checkApp(r.guid(), wanted), r.checkRoutes(ctx, wanted), missing); err != nil {
			return Response{}, err
		}
	}
	var warnings []string
	for i, wanted := range manifest.Applications {
		warning, err := r.applyApp(ctx, r.guid(), wanted, services[i])
		if err != nil {
			return Response{}, nameAppliedApps(err, manifest.Applications[:i])
		}
		warnings = append(warnings, wanted.IgnoredParts(r.Builder != nil)...)
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	response, err := r.accepted(manifestJob+r.guid(), nil)
	response.Warnings = warnings
	return response, err
}

// nameAppliedApps adds to the error of one app the names of the apps that have already been applied, because these are
// not rolled back.
func nameAppliedApps(err error, applied []payloads.ManifestApp) error {
	if len(applied) == 0 {
		return err
	}
	names := make([]string, len(applied))
	for i, app := range applied {
		names[i] = app.Name
	}
	named := *apierrors.FromError(err, repositories.AppResourceType)
	named.Detail += "; apps that were already applied: " + strings.Join(names, ", ")
	return &named
}

// parseManifest returns the manifest in the body, if the caller can see the space in the path. A body for which isEmpty
// returns true has no apps.
func (r *Request) parseManifest(ctx context.Context, isEmpty func(raw []byte) bool) (payloads.Manifest, error) {
	if err := r.requireSpace(ctx, r.guid()); err != nil {
		return payloads.Manifest{}, err
	}
	var raw []byte
	// The body is read before the wait, because unread bodies block other requests on a shared connection.
	release, err := r.Manifests.acquire(ctx, r.Caller.Name, func() (err error) {
		raw, err = payloads.ReadManifest(r.HTTP.Body)
		return err
	})
	if err != nil {
		return payloads.Manifest{}, err
	}
	defer release()
	if isEmpty(raw) {
		return payloads.Manifest{}, nil
	}
	return payloads.ParseManifest(raw, r.Limits)
}

// getManifestDiff lists the changes that a manifest would make.
func getManifestDiff(ctx context.Context, r *Request) (Response, error) {
	manifest, err := r.parseManifest(ctx, func(raw []byte) bool { return len(bytes.TrimSpace(raw)) == 0 })
	if err != nil {
		return Response{}, err
	}
	diff := presenter.ManifestDiff{Diff: []presenter.ManifestDifference{}}
	for i, wanted := range manifest.Applications {
		now, err := r.appState(ctx, r.guid(), wanted.Name)
		if err != nil {
			return Response{}, err
		}
		diff.Diff = append(diff.Diff, presenter.ForManifestDiff(i, wanted, now)...)
	}
	return Response{Status: http.StatusAccepted, Body: diff}, nil
}

// getAppManifest returns an app as a manifest.
func getAppManifest(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	state, err := r.stateOf(ctx, app)
	if err != nil {
		return Response{}, err
	}
	image := ""
	if build, err := r.currentDroplet(ctx, app); err == nil {
		if image, err = r.imageOf(ctx, build); err != nil {
			return Response{}, err
		}
	} else if ignoreNotFound(err) != nil {
		return Response{}, err
	}
	addresses, err := r.addressesOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	services, err := r.serviceNamesOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	text, err := yaml.Marshal(presenter.ForAppManifest(state, image, addresses, services))
	return Response{Status: http.StatusOK, YAML: text}, err
}

// imageOf returns the droplet's image as the user specified it in its package, or else the image in the droplet. With a
// digest in the manifest, each push of the manifest would deploy the same image, even after its tag has moved.
func (r *Request) imageOf(ctx context.Context, build *korifiv1alpha1.CFBuild) (string, error) {
	from, err := r.Store.GetPackageInSpace(ctx, r.Caller, build.Namespace, build.Spec.PackageRef.Name)
	switch {
	case err == nil && from.Spec.Type == korifiv1alpha1.DockerPackage:
		return from.Spec.Source.Registry.Image, nil
	case ignoreNotFound(err) != nil:
		return "", err
	default:
		return build.Status.Droplet.Registry.Image, nil
	}
}

// appState returns the current state of an app, or an empty state if no app has this name.
func (r *Request) appState(ctx context.Context, space, name string) (presenter.AppState, error) {
	app, err := r.Store.FindAppByName(space, name)
	if app == nil || err != nil {
		return presenter.AppState{}, err
	}
	return r.stateOf(ctx, app)
}

func (r *Request) stateOf(ctx context.Context, app *korifiv1alpha1.CFApp) (presenter.AppState, error) {
	processes, err := r.Store.ListProcessesOfApp(ctx, app)
	if err != nil {
		return presenter.AppState{}, err
	}
	variables, err := r.Store.GetEnvironment(ctx, r.Caller, app)
	return presenter.AppState{App: app, Processes: processes, Variables: variables}, err
}

// waysWithoutBuilder describes the alternatives to a rejected push of source code.
const waysWithoutBuilder = "push an image with --docker-image, or ask the platform team to connect a builder such as kpack"

// checkApp rejects a new app without an image if no builder is configured, and an image for an app that is built from
// code. Without this check, a push of code would fail only after creating an app that can never run.
func (r *Request) checkApp(space string, wanted payloads.ManifestApp) error {
	app, err := r.Store.FindAppByName(space, wanted.Name)
	switch {
	case err != nil:
		return err
	case app == nil && wanted.Docker == nil && r.Builder == nil:
		return apierrors.NewUnprocessableEntity("For application '" + wanted.Name + "': expected an image, because no builder of source code is configured; found none; " + waysWithoutBuilder)
	case app != nil && wanted.Docker != nil:
		return requireImages(app)
	default:
		return nil
	}
}

// requireImages rejects an image for an app whose lifecycle type is not docker, because the type cannot be changed.
func requireImages(app *korifiv1alpha1.CFApp) error {
	if app.Spec.Lifecycle.Type == korifiv1alpha1.DockerLifecycle {
		return nil
	}
	return apierrors.NewUnprocessableEntity("For application '" + app.Spec.DisplayName + "': expected an app with the lifecycle docker, found one with the lifecycle " +
		string(app.Spec.Lifecycle.Type) + "; delete that app, or push under another name")
}

// applyApp creates an app or changes an existing one, including its service bindings and routes, to match a manifest.
func (r *Request) applyApp(ctx context.Context, space string, wanted payloads.ManifestApp, services []*korifiv1alpha1.CFServiceInstance) (warning string, err error) {
	app, err := r.Store.FindAppByName(space, wanted.Name)
	if err != nil {
		return "", err
	}
	if app == nil {
		app, err = r.Store.CreateApp(ctx, r.Caller, repositories.CreateAppMessage{Name: wanted.Name, Space: space, Lifecycle: lifecycleOf(wanted)})
	} else {
		app, err = r.repairApp(ctx, app, lifecycleOf(wanted))
	}
	if err == nil && !wanted.Metadata.IsEmpty() {
		_, err = r.Store.UpdateApp(ctx, r.Caller, app, "", wanted.Metadata)
	}
	if vars := wanted.Variables(); err == nil && len(vars) > 0 {
		err = r.Store.SetEnvironment(ctx, r.Caller, app, vars)
	}
	if err != nil {
		return "", err
	}
	for _, process := range wanted.AllProcesses() {
		if err := r.applyProcess(ctx, app, process); err != nil {
			return "", err
		}
	}
	if err := r.bindServices(ctx, app, wanted, services); err != nil {
		return "", err
	}
	return r.applyRoutes(ctx, app, wanted)
}

// repairApp creates the environment Secret of an existing app if it is missing. If a builder is configured and the
// lifecycle type is unchanged, it also updates the buildpack settings.
func (r *Request) repairApp(ctx context.Context, app *korifiv1alpha1.CFApp, wished korifiv1alpha1.Lifecycle) (*korifiv1alpha1.CFApp, error) {
	if err := r.Store.RepairEnvironment(ctx, r.Caller, app); err != nil {
		return nil, err
	}
	if r.Builder == nil || wished.Type != app.Spec.Lifecycle.Type {
		return app, nil
	}
	return r.Store.SetBuildpacks(ctx, r.Caller, app, wished.Data)
}

// lifecycleOf returns the lifecycle of a manifest's app.
func lifecycleOf(wanted payloads.ManifestApp) korifiv1alpha1.Lifecycle {
	if wanted.Docker != nil {
		return korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}
	}
	return korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle, Data: korifiv1alpha1.LifecycleData{Buildpacks: wanted.Buildpacks, Stack: wanted.Stack}}
}

func (r *Request) applyProcess(ctx context.Context, app *korifiv1alpha1.CFApp, wanted payloads.ManifestProcess) error {
	message, err := patchMessageOf(wanted)
	if err != nil {
		return err
	}
	process, err := r.Store.GetProcessByType(ctx, app, wanted.Type)
	if ignoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		if process, err = r.Store.CreateProcess(ctx, r.Caller, app, wanted.Type); err != nil {
			return err
		}
	}
	_, err = r.Store.PatchProcess(ctx, r.Caller, process, message)
	return err
}

func patchMessageOf(wanted payloads.ManifestProcess) (repositories.PatchProcessMessage, error) {
	message := repositories.PatchProcessMessage{
		Instances: wanted.Instances, Command: wanted.Command, Timeout: wanted.Timeout, Invocation: wanted.HealthCheckInvocationTimeout,
	}
	for _, size := range []struct {
		text string
		into **int64
	}{{wanted.Memory, &message.MemoryMB}, {wanted.DiskSize(), &message.DiskMB}} {
		megabytes, err := payloads.ParseMegabytes(size.text)
		if err != nil {
			return repositories.PatchProcessMessage{}, err
		}
		if megabytes > 0 {
			*size.into = &megabytes
		}
	}
	if wanted.Ports != nil {
		message.Ports = &wanted.Ports
	}
	if wanted.HealthCheckType != "" {
		message.CheckType = &wanted.HealthCheckType
	}
	if wanted.HealthCheckHTTPEndpoint != "" {
		message.Endpoint = &wanted.HealthCheckHTTPEndpoint
	}
	return message, nil
}
