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
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

func listApps(ctx context.Context, c *Request) (Response, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListApps(in)
	if err != nil {
		return Response{}, err
	}
	q := c.HTTP.URL.Query()
	names, guids := payloads.ParseFilter(q, "names"), payloads.ParseFilter(q, "guids")
	if names != nil || guids != nil {
		all = slices.DeleteFunc(all, func(a *korifiv1alpha1.CFApp) bool {
			return !names.Matches(a.Spec.DisplayName) || !guids.Matches(a.Name)
		})
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
		return repositories.CompareByAge(a, b)
	})
	if strings.HasPrefix(by, "-") {
		slices.Reverse(all)
	}
}

func (c *Request) show(app *korifiv1alpha1.CFApp) presenter.App { return presenter.ForApp(c.Base, app) }

func getApp(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	return ok(c.show(found))
}

func createApp(ctx context.Context, c *Request) (Response, error) {
	var body payloads.AppBody
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	in := body.Relationships.Space.Data.GUID
	if err := c.seesSpace(ctx, in); err != nil {
		return Response{}, err
	}
	n := repositories.CreateAppMessage{Name: body.Name, Space: in, Lifecycle: korifiv1alpha1.BuildpackLifecycle, Environment: body.EnvironmentVariables}
	if body.Lifecycle.Type != "" {
		n.Lifecycle = korifiv1alpha1.LifecycleType(body.Lifecycle.Type)
	}
	made, err := c.Store.CreateApp(ctx, c.Caller, n)
	if err != nil {
		return Response{}, err
	}
	return created(c.show(made))
}

// seesSpace: a space that the caller does not see is not there.
func (c *Request) seesSpace(ctx context.Context, guid string) error {
	_, err := c.spaceOf(ctx, guid)
	if err != nil && notMissing(err) == nil {
		return apierrors.NewUnprocessableEntity("Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

func updateApp(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	var body payloads.AppBody
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	if body.Name != "" && body.Name != found.Spec.DisplayName {
		if found, err = c.Store.RenameApp(ctx, c.Caller, found, body.Name); err != nil {
			return Response{}, err
		}
	}
	return ok(c.show(found))
}

func deleteApp(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	if err := c.Store.DeleteApp(ctx, c.Caller, found); err != nil {
		return Response{}, err
	}
	return c.accepted(deleteJob + found.Name)
}

func getAppEnvironment(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	vars, err := c.Store.GetEnvironment(ctx, c.Caller, found)
	if err != nil {
		return Response{}, err
	}
	empty := map[string]string{}
	current, _, _ := revision.FromApp(found)
	return ok(map[string]any{
		"environment_variables": vars, "staging_env_json": empty, "running_env_json": empty, "system_env_json": empty,
		"application_env_json": map[string]any{"VCAP_APPLICATION": lrp.VCAPApplication(found.Name, found.Spec.DisplayName, found.Namespace, revision.FormatRevision(current))},
	})
}

func getEnvVars(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	vars, err := c.Store.GetEnvironment(ctx, c.Caller, found)
	if err != nil {
		return Response{}, err
	}
	return ok(map[string]any{"var": vars, "links": presenter.Links{}})
}

func updateEnvVars(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	var body payloads.EnvVarsPatch
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(body.Var)) {
		if !payloads.IsSettableVariable(name) {
			return Response{}, apierrors.NewUnprocessableEntity("expected a name of your own for an environment variable, found '" + name + "'; choose another")
		}
	}
	if err := c.Store.SetEnvironment(ctx, c.Caller, found, body.Var); err != nil {
		return Response{}, err
	}
	return getEnvVars(ctx, c)
}

// getAppFeature: apps are kept by revision; nobody gets a shell through this API.
func getAppFeature(ctx context.Context, c *Request) (Response, error) {
	if _, err := c.app(ctx); err != nil {
		return Response{}, err
	}
	name := c.HTTP.PathValue("name")
	return ok(map[string]any{"name": name, "description": "", "enabled": name == "revisions"})
}
