// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/restart"
)

func apps(ctx context.Context, c *Call) (Answer, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.AppsIn(in)
	if err != nil {
		return Answer{}, err
	}
	q := c.Request.URL.Query()
	names, guids := payloads.FilterOf(q, "names"), payloads.FilterOf(q, "guids")
	if names != nil || guids != nil {
		all = slices.DeleteFunc(all, func(a *korifiv1alpha1.CFApp) bool { return !names.Has(a.Spec.DisplayName) || !guids.Has(a.Name) })
	}
	orderApps(all, q.Get("order_by"))
	return page(c, all, c.show)
}

// orderApps by name or state, and where that is the same, or nothing is asked for, by age.
func orderApps(all []*korifiv1alpha1.CFApp, by string) {
	first := func(_, _ *korifiv1alpha1.CFApp) int { return 0 }
	switch strings.TrimPrefix(by, "-") {
	case "name":
		first = func(a, b *korifiv1alpha1.CFApp) int { return cmp.Compare(a.Spec.DisplayName, b.Spec.DisplayName) }
	case "state":
		first = func(a, b *korifiv1alpha1.CFApp) int { return cmp.Compare(a.Spec.DesiredState, b.Spec.DesiredState) }
	}
	slices.SortFunc(all, func(a, b *korifiv1alpha1.CFApp) int {
		if c := first(a, b); c != 0 {
			return c
		}
		return repositories.Older(a, b)
	})
	if strings.HasPrefix(by, "-") {
		slices.Reverse(all)
	}
}

func (c *Call) show(app *korifiv1alpha1.CFApp) presenter.App { return presenter.AppOf(c.Base, app) }

func app(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	return ok(c.show(found))
}

func createApp(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.App
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	in := body.Relationships.Space.Data.GUID
	if err := c.seesSpace(ctx, in); err != nil {
		return Answer{}, err
	}
	n := repositories.NewApp{Name: body.Name, Space: in, Lifecycle: korifiv1alpha1.BuildpackLifecycle, Environment: body.EnvironmentVariables}
	if body.Lifecycle.Type != "" {
		n.Lifecycle = korifiv1alpha1.LifecycleType(body.Lifecycle.Type)
	}
	made, err := c.Store.CreateApp(ctx, c.Caller, n)
	if err != nil {
		return Answer{}, err
	}
	return created(c.show(made))
}

// seesSpace: a space that the caller does not see is not there.
func (c *Call) seesSpace(ctx context.Context, guid string) error {
	_, err := c.spaceOf(ctx, guid)
	if err != nil && notMissing(err) == nil {
		return apierrors.Unprocessable("Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

func updateApp(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	var body payloads.App
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	if body.Name != "" && body.Name != found.Spec.DisplayName {
		if found, err = c.Store.Rename(ctx, c.Caller, found, body.Name); err != nil {
			return Answer{}, err
		}
	}
	return ok(c.show(found))
}

func deleteApp(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	if err := c.Store.Delete(ctx, c.Caller, found); err != nil {
		return Answer{}, err
	}
	return c.accepted(deleteJob + found.Name)
}

func appEnvironment(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	vars, err := c.Store.Environment(ctx, c.Caller, found)
	if err != nil {
		return Answer{}, err
	}
	empty := map[string]string{}
	revision, _, _ := restart.RevisionOf(found)
	return ok(map[string]any{
		"environment_variables": vars, "staging_env_json": empty, "running_env_json": empty, "system_env_json": empty,
		"application_env_json": map[string]any{"VCAP_APPLICATION": restart.Application(found.Name, found.Spec.DisplayName, found.Namespace, restart.FormatRevision(revision))},
	})
}

func variables(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	vars, err := c.Store.Environment(ctx, c.Caller, found)
	if err != nil {
		return Answer{}, err
	}
	return ok(map[string]any{"var": vars, "links": presenter.Links{}})
}

func setVariables(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	var body payloads.Variables
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(body.Var)) {
		if !payloads.OwnVariable(name) {
			return Answer{}, apierrors.Unprocessable("expected a name of your own for an environment variable, found '" + name + "'; choose another")
		}
	}
	if err := c.Store.SetEnvironment(ctx, c.Caller, found, body.Var); err != nil {
		return Answer{}, err
	}
	return variables(ctx, c)
}

// features: apps are kept by revision; nobody gets a shell through this API.
func features(ctx context.Context, c *Call) (Answer, error) {
	if _, err := c.app(ctx); err != nil {
		return Answer{}, err
	}
	name := c.Request.PathValue("name")
	return ok(map[string]any{"name": name, "description": "", "enabled": name == "revisions"})
}
