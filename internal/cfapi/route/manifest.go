// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cfapi/payload"
	"github.com/torpor-dev/torpor/internal/cfapi/store"
)

// applyManifest is done when it answers; the job that the client asks for is over at once.
func applyManifest(ctx context.Context, c *Call) (Answer, error) {
	if err := c.seesSpace(ctx, c.guid()); err != nil {
		return Answer{}, err
	}
	m, err := payload.ManifestOf(c.Request.Body)
	if err != nil {
		return Answer{}, err
	}
	for _, wanted := range m.Applications {
		if err := c.apply(ctx, c.guid(), wanted); err != nil {
			return Answer{}, err
		}
	}
	return c.accepted(manifestJob + c.guid())
}

// apply makes an app what a manifest says, and makes it first if there is none.
func (c *Call) apply(ctx context.Context, space string, wanted payload.ManifestApp) error {
	all, err := c.Store.AppsIn([]string{space})
	if err != nil {
		return err
	}
	var app *korifiv1alpha1.CFApp
	for _, a := range all {
		if a.Spec.DisplayName == wanted.Name {
			app = a
		}
	}
	vars := wanted.Variables()
	if app == nil {
		n := store.NewApp{Name: wanted.Name, Space: space, Lifecycle: korifiv1alpha1.BuildpackLifecycle, Environment: vars}
		if wanted.Docker != nil {
			n.Lifecycle = korifiv1alpha1.DockerLifecycle
		}
		app, err = c.Store.CreateApp(ctx, c.Caller, n)
	} else if len(vars) > 0 {
		changes := map[string]*string{}
		for name, value := range vars {
			changes[name] = &value
		}
		err = c.Store.SetEnvironment(ctx, c.Caller, app, changes)
	}
	if err != nil {
		return err
	}
	web := wanted.ManifestProcess
	web.Type = korifiv1alpha1.WebProcess
	for _, p := range append([]payload.ManifestProcess{web}, wanted.Processes...) {
		if err := c.applyProcess(ctx, app, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *Call) applyProcess(ctx context.Context, app *korifiv1alpha1.CFApp, wanted payload.ManifestProcess) error {
	change, err := changeOf(wanted)
	if err != nil {
		return err
	}
	p, err := c.Store.ProcessOf(ctx, app, wanted.Type)
	if notMissing(err) != nil {
		return err
	}
	if err != nil {
		if p, err = c.Store.CreateProcess(ctx, c.Caller, app, wanted.Type); err != nil {
			return err
		}
	}
	_, err = c.Store.ChangeProcess(ctx, c.Caller, p, change)
	return err
}

func changeOf(wanted payload.ManifestProcess) (store.Change, error) {
	change := store.Change{Instances: wanted.Instances, Command: wanted.Command, Timeout: wanted.Timeout, Invocation: wanted.HealthCheckInvocationTimeout}
	for _, size := range []struct {
		text string
		into **int64
	}{{wanted.Memory, &change.MemoryMB}, {wanted.DiskQuota, &change.DiskMB}} {
		mb, err := payload.MB(size.text)
		if err != nil {
			return store.Change{}, err
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
