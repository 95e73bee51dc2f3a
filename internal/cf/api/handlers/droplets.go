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

func currentDroplet(ctx context.Context, c *Call) (Answer, error) {
	b, err := c.current(ctx)
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.DropletOf(c.Base, b))
}

func currentDropletRelationship(ctx context.Context, c *Call) (Answer, error) {
	b, err := c.current(ctx)
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.To(b.Name))
}

func (c *Call) current(ctx context.Context) (*korifiv1alpha1.CFBuild, error) {
	a, err := c.app(ctx)
	if err != nil {
		return nil, err
	}
	if a.Spec.CurrentDropletRef == nil {
		return nil, apierrors.NotFound(repositories.DropletThing)
	}
	return c.droplet(ctx, a.Spec.CurrentDropletRef.Name)
}

// droplet is a build that is staged.
func (c *Call) droplet(ctx context.Context, guid string) (*korifiv1alpha1.CFBuild, error) {
	b, err := c.Store.Build(ctx, c.Caller, guid, repositories.DropletThing)
	if err == nil && presenter.StateOf(b) != korifiv1alpha1.StagedBuild {
		return nil, apierrors.NotFound(repositories.DropletThing)
	}
	return b, err
}

// dropletFor is a droplet that an app may run; nil if it is none of the app's.
func (c *Call) dropletFor(ctx context.Context, app *korifiv1alpha1.CFApp, guid string) (*korifiv1alpha1.CFBuild, error) {
	b, err := c.droplet(ctx, guid)
	if err != nil {
		return nil, notMissing(err)
	}
	if b.Namespace != app.Namespace || b.Spec.AppRef.Name != app.Name {
		return nil, nil
	}
	return b, nil
}

func droplet(ctx context.Context, c *Call) (Answer, error) {
	b, err := c.droplet(ctx, c.guid())
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.DropletOf(c.Base, b))
}

func setCurrentDroplet(ctx context.Context, c *Call) (Answer, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	var body payloads.Relationship
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	b, err := c.dropletFor(ctx, a, body.Data.GUID)
	switch {
	case err != nil:
		return Answer{}, err
	case b == nil:
		return Answer{}, apierrors.Unprocessable("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
	}
	if _, err := c.Store.SetDroplet(ctx, c.Caller, a, b.Name); err != nil {
		return Answer{}, err
	}
	return ok(presenter.To(b.Name))
}

func packages(ctx context.Context, c *Call) (Answer, error) {
	var all []*korifiv1alpha1.CFPackage
	guids := payloads.FilterOf(c.Request.URL.Query(), "app_guids")
	if c.guid() != "" {
		guids = payloads.Filter{c.guid()}
	}
	for _, guid := range guids {
		a, err := c.Store.App(ctx, c.Caller, guid)
		if notMissing(err) != nil {
			return Answer{}, err
		}
		if err != nil {
			continue
		}
		found, err := c.Store.PackagesOf(ctx, a)
		if err != nil {
			return Answer{}, err
		}
		all = append(all, found...)
	}
	if strings.HasPrefix(c.Request.URL.Query().Get("order_by"), "-") {
		slices.Reverse(all)
	}
	return page(c, all, func(p *korifiv1alpha1.CFPackage) presenter.Package { return presenter.PackageOf(c.Base, p) })
}

func onePackage(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.Store.Package(ctx, c.Caller, c.guid())
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.PackageOf(c.Base, p))
}

// packageDroplets are the droplets that were made from a package.
func packageDroplets(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.Store.Package(ctx, c.Caller, c.guid())
	if err != nil {
		return Answer{}, err
	}
	a, err := c.Store.App(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.BuildsOf(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	return c.staged(slices.DeleteFunc(all, func(b *korifiv1alpha1.CFBuild) bool { return b.Spec.PackageRef.Name != p.Name }))
}

// appDroplets are those of an app.
func appDroplets(ctx context.Context, c *Call) (Answer, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.BuildsOf(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	return c.staged(all)
}

// staged shows those of some builds that are droplets, in the order in which they were made, or the last first.
func (c *Call) staged(all []*korifiv1alpha1.CFBuild) (Answer, error) {
	all = slices.DeleteFunc(all, func(b *korifiv1alpha1.CFBuild) bool { return presenter.StateOf(b) != korifiv1alpha1.StagedBuild })
	if strings.HasPrefix(c.Request.URL.Query().Get("order_by"), "-") {
		slices.Reverse(all)
	}
	return page(c, all, func(b *korifiv1alpha1.CFBuild) presenter.Droplet { return presenter.DropletOf(c.Base, b) })
}

func createPackage(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Package
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	switch {
	case body.Type != string(korifiv1alpha1.DockerPackage):
		return Answer{}, apierrors.Unprocessable("expected a package of type docker, because Torpor builds no code; found " + body.Type + "; push with --docker-image")
	case body.Data.Image == "":
		return Answer{}, apierrors.Unprocessable("expected data.image of a package of type docker, found none; name the image")
	case body.Data.Username != "":
		return Answer{}, apierrors.Unprocessable("expected no user name of a registry, because registries are let in by image pull secrets; leave it out and ask the platform team for one")
	}
	a, err := c.Store.App(ctx, c.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Answer{}, err
	}
	p, err := c.Store.CreatePackage(ctx, c.Caller, a, body.Data.Image)
	if err != nil {
		return Answer{}, err
	}
	return created(presenter.PackageOf(c.Base, p))
}

func createBuild(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Build
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	p, err := c.Store.Package(ctx, c.Caller, body.Package.GUID)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.Store.App(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Answer{}, err
	}
	b, err := c.Store.CreateBuild(ctx, c.Caller, a, p)
	if err != nil {
		return Answer{}, err
	}
	return created(presenter.BuildOf(c.Base, b))
}

// build is held while it is staged.
func build(ctx context.Context, c *Call) (Answer, error) {
	b, err := c.Store.Build(ctx, c.Caller, c.guid(), repositories.BuildThing)
	if err != nil {
		return Answer{}, err
	}
	held, cancel := held(ctx, hold)
	defer cancel()
	err = c.Store.Until(held, b.Name, func() (bool, error) {
		newer, err := c.Store.Build(ctx, c.Caller, b.Name, repositories.BuildThing)
		if err != nil {
			return false, err
		}
		b = newer
		return presenter.StateOf(b) != korifiv1alpha1.StagingBuild, nil
	})
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.BuildOf(c.Base, b))
}
