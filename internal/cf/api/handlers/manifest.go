// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"net/http"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// applyManifest is done when it answers; the job that the client asks for is over at once.
func applyManifest(ctx context.Context, c *Request) (Response, error) {
	m, err := c.manifest(ctx)
	if err != nil {
		return Response{}, err
	}
	var ignored []string
	for _, wanted := range m.Applications {
		if err := c.apply(ctx, c.guid(), wanted); err != nil {
			return Response{}, err
		}
		ignored = append(ignored, wanted.IgnoredParts()...)
	}
	answer, err := c.accepted(manifestJob + c.guid())
	answer.Warnings = ignored
	return answer, err
}

// manifest is that of the body, for a space that the caller sees.
func (c *Request) manifest(ctx context.Context) (payloads.Manifest, error) {
	if err := c.seesSpace(ctx, c.guid()); err != nil {
		return payloads.Manifest{}, err
	}
	return payloads.ParseManifest(c.HTTP.Body)
}

// getManifestDiff says what applying it would change.
func getManifestDiff(ctx context.Context, c *Request) (Response, error) {
	m, err := c.manifest(ctx)
	if err != nil {
		return Response{}, err
	}
	diff := presenter.ManifestDiff{Diff: []presenter.ManifestDifference{}}
	for i, wanted := range m.Applications {
		now, err := c.state(ctx, c.guid(), wanted.Name)
		if err != nil {
			return Response{}, err
		}
		diff.Diff = append(diff.Diff, presenter.ForManifestDiff(i, wanted, now)...)
	}
	return Response{Status: http.StatusCreated, Body: diff}, nil
}

// state is how an app is now; empty if there is none of this name.
func (c *Request) state(ctx context.Context, space, name string) (presenter.AppState, error) {
	app, err := c.Store.FindAppByName(space, name)
	if app == nil || err != nil {
		return presenter.AppState{}, err
	}
	state := presenter.AppState{App: app}
	if state.Processes, err = c.Store.ListProcessesOfApp(ctx, app); err != nil {
		return state, err
	}
	state.Variables, err = c.Store.GetEnvironment(ctx, c.Caller, app)
	return state, err
}

// apply makes an app what a manifest says, and makes it first if there is none.
func (c *Request) apply(ctx context.Context, space string, wanted payloads.ManifestApp) error {
	app, err := c.Store.FindAppByName(space, wanted.Name)
	if err != nil {
		return err
	}
	vars := wanted.Variables()
	if app == nil {
		n := repositories.CreateAppMessage{Name: wanted.Name, Space: space, Lifecycle: korifiv1alpha1.BuildpackLifecycle}
		if wanted.Docker != nil {
			n.Lifecycle = korifiv1alpha1.DockerLifecycle
		}
		app, err = c.Store.CreateApp(ctx, c.Caller, n)
	}
	if err == nil && len(vars) > 0 {
		err = c.Store.SetEnvironment(ctx, c.Caller, app, vars)
	}
	if err != nil {
		return err
	}
	for _, p := range wanted.AllProcesses() {
		if err := c.applyProcess(ctx, app, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Request) applyProcess(ctx context.Context, app *korifiv1alpha1.CFApp, wanted payloads.ManifestProcess) error {
	change, err := changeOf(wanted)
	if err != nil {
		return err
	}
	p, err := c.Store.GetProcessByType(ctx, app, wanted.Type)
	if notMissing(err) != nil {
		return err
	}
	if err != nil {
		if p, err = c.Store.CreateProcess(ctx, c.Caller, app, wanted.Type); err != nil {
			return err
		}
	}
	_, err = c.Store.PatchProcess(ctx, c.Caller, p, change)
	return err
}

func changeOf(wanted payloads.ManifestProcess) (repositories.PatchProcessMessage, error) {
	change := repositories.PatchProcessMessage{Instances: wanted.Instances, Command: wanted.Command, Timeout: wanted.Timeout, Invocation: wanted.HealthCheckInvocationTimeout}
	for _, size := range []struct {
		text string
		into **int64
	}{{wanted.Memory, &change.MemoryMB}, {wanted.DiskSize(), &change.DiskMB}} {
		mb, err := payloads.ParseMegabytes(size.text)
		if err != nil {
			return repositories.PatchProcessMessage{}, err
		}
		if mb > 0 {
			*size.into = &mb
		}
	}
	if wanted.HealthCheckType != "" {
		change.CheckType = &wanted.HealthCheckType
	}
	if wanted.HealthCheckHTTPEndpoint != "" {
		change.Endpoint = &wanted.HealthCheckHTTPEndpoint
	}
	return change, nil
}
