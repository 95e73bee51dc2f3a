// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func getCurrentDroplet(ctx context.Context, c *Request) (Response, error) {
	b, err := c.current(ctx)
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForDroplet(c.Base, b))
}

func getCurrentDropletRelationship(ctx context.Context, c *Request) (Response, error) {
	b, err := c.current(ctx)
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.RelationshipTo(b.Name))
}

func (c *Request) current(ctx context.Context) (*korifiv1alpha1.CFBuild, error) {
	a, err := c.app(ctx)
	if err != nil {
		return nil, err
	}
	if a.Spec.CurrentDropletRef == nil {
		return nil, apierrors.NewNotFound(repositories.DropletResourceType)
	}
	return c.droplet(ctx, a.Spec.CurrentDropletRef.Name)
}

// droplet is a build that is staged.
func (c *Request) droplet(ctx context.Context, guid string) (*korifiv1alpha1.CFBuild, error) {
	b, err := c.Store.GetBuild(ctx, c.Caller, guid, repositories.DropletResourceType)
	if err == nil && presenter.BuildStateOf(b) != korifiv1alpha1.StagedBuild {
		return nil, apierrors.NewNotFound(repositories.DropletResourceType)
	}
	return b, err
}

// dropletFor is a droplet that an app may run; nil if it is none of the app's.
func (c *Request) dropletFor(ctx context.Context, app *korifiv1alpha1.CFApp, guid string) (*korifiv1alpha1.CFBuild, error) {
	b, err := c.droplet(ctx, guid)
	if err != nil {
		return nil, notMissing(err)
	}
	if b.Namespace != app.Namespace || b.Spec.AppRef.Name != app.Name {
		return nil, nil
	}
	return b, nil
}

func getDroplet(ctx context.Context, c *Request) (Response, error) {
	b, err := c.droplet(ctx, c.guid())
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForDroplet(c.Base, b))
}

func setCurrentDroplet(ctx context.Context, c *Request) (Response, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	var body payloads.Relationship
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	b, err := c.dropletFor(ctx, a, body.Data.GUID)
	switch {
	case err != nil:
		return Response{}, err
	case b == nil:
		return Response{}, apierrors.NewUnprocessableEntity("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
	}
	if _, err := c.Store.SetCurrentDroplet(ctx, c.Caller, a, b.Name); err != nil {
		return Response{}, err
	}
	return ok(presenter.RelationshipTo(b.Name))
}

func listPackages(ctx context.Context, c *Request) (Response, error) {
	var all []*korifiv1alpha1.CFPackage
	guids := payloads.ParseFilter(c.HTTP.URL.Query(), "app_guids")
	if c.guid() != "" {
		guids = payloads.Filter{c.guid()}
	}
	for _, guid := range guids {
		a, err := c.Store.GetApp(ctx, c.Caller, guid)
		if notMissing(err) != nil {
			return Response{}, err
		}
		if err != nil {
			continue
		}
		found, err := c.Store.ListPackagesOfApp(ctx, a)
		if err != nil {
			return Response{}, err
		}
		all = append(all, found...)
	}
	if strings.HasPrefix(c.HTTP.URL.Query().Get("order_by"), "-") {
		slices.Reverse(all)
	}
	return page(c, all, func(p *korifiv1alpha1.CFPackage) presenter.Package { return presenter.ForPackage(c.Base, p) })
}

func getPackage(ctx context.Context, c *Request) (Response, error) {
	p, err := c.Store.GetPackage(ctx, c.Caller, c.guid())
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForPackage(c.Base, p))
}

// listPackageDroplets are the droplets that were made from a package.
func listPackageDroplets(ctx context.Context, c *Request) (Response, error) {
	p, err := c.Store.GetPackage(ctx, c.Caller, c.guid())
	if err != nil {
		return Response{}, err
	}
	a, err := c.Store.GetApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListBuildsOfApp(ctx, a)
	if err != nil {
		return Response{}, err
	}
	return c.staged(slices.DeleteFunc(all, func(b *korifiv1alpha1.CFBuild) bool { return b.Spec.PackageRef.Name != p.Name }))
}

// listAppDroplets are those of an app.
func listAppDroplets(ctx context.Context, c *Request) (Response, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListBuildsOfApp(ctx, a)
	if err != nil {
		return Response{}, err
	}
	return c.staged(all)
}

// staged shows those of some builds that are droplets, in the order in which they were made, or the last first.
func (c *Request) staged(all []*korifiv1alpha1.CFBuild) (Response, error) {
	all = slices.DeleteFunc(all, func(b *korifiv1alpha1.CFBuild) bool { return presenter.BuildStateOf(b) != korifiv1alpha1.StagedBuild })
	if strings.HasPrefix(c.HTTP.URL.Query().Get("order_by"), "-") {
		slices.Reverse(all)
	}
	return page(c, all, func(b *korifiv1alpha1.CFBuild) presenter.Droplet { return presenter.ForDroplet(c.Base, b) })
}

func createPackage(ctx context.Context, c *Request) (Response, error) {
	var body payloads.PackageCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	switch {
	case body.Type != string(korifiv1alpha1.DockerPackage):
		return Response{}, apierrors.NewUnprocessableEntity("expected a package of type docker, because Torpor builds no code; found " + body.Type + "; push with --docker-image")
	case body.Data.Image == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected data.image of a package of type docker, found none; name the image")
	case body.Data.Username != "":
		return Response{}, apierrors.NewUnprocessableEntity("expected no user name of a registry, because registries are let in by image pull secrets; leave it out and ask the platform team for one")
	}
	a, err := c.Store.GetApp(ctx, c.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	p, err := c.Store.CreatePackage(ctx, c.Caller, a, body.Data.Image)
	if err != nil {
		return Response{}, err
	}
	return created(presenter.ForPackage(c.Base, p))
}

func createBuild(ctx context.Context, c *Request) (Response, error) {
	var body payloads.BuildCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	p, err := c.Store.GetPackage(ctx, c.Caller, body.Package.GUID)
	if err != nil {
		return Response{}, err
	}
	a, err := c.Store.GetApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	b, err := c.Store.CreateBuild(ctx, c.Caller, a, p)
	if err != nil {
		return Response{}, err
	}
	return created(presenter.ForBuild(c.Base, b))
}

// getBuild is held while it is staged.
func getBuild(ctx context.Context, c *Request) (Response, error) {
	b, err := c.Store.GetBuild(ctx, c.Caller, c.guid(), repositories.BuildResourceType)
	if err != nil {
		return Response{}, err
	}
	held, cancel := withDeadline(ctx, maxHold)
	defer cancel()
	err = c.Store.WaitFor(held, b.Name, func() (bool, error) {
		newer, err := c.Store.GetBuild(ctx, c.Caller, b.Name, repositories.BuildResourceType)
		if err != nil {
			return false, err
		}
		b = newer
		return presenter.BuildStateOf(b) != korifiv1alpha1.StagingBuild, nil
	})
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForBuild(c.Base, b))
}
