// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func getCurrentDroplet(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	build, err := r.currentDroplet(ctx, app)
	return present(r, presenter.ForDroplet, build, err)
}

func getCurrentDropletRelationship(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	build, err := r.currentDroplet(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.RelationshipTo(build.Name))
}

func (r *Request) currentDroplet(ctx context.Context, app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFBuild, error) {
	if app.Spec.CurrentDropletRef == nil {
		return nil, apierrors.NewNotFound(repositories.DropletResourceType)
	}
	return requireStaged(r.Store.GetBuildInSpace(ctx, r.Caller, app.Namespace, app.Spec.CurrentDropletRef.Name, repositories.DropletResourceType))
}

// requireStaged returns the build if it has been staged. Otherwise it returns err or a not-found error, because a build
// that has not been staged has no droplet.
func requireStaged(build *korifiv1alpha1.CFBuild, err error) (*korifiv1alpha1.CFBuild, error) {
	if err == nil && presenter.BuildStateOf(build) != korifiv1alpha1.StagedBuild {
		return nil, apierrors.NewNotFound(repositories.DropletResourceType)
	}
	return build, err
}

// findDropletOfApp returns a droplet that the app may run, or nil if the droplet does not exist or belongs to another
// app.
func (r *Request) findDropletOfApp(ctx context.Context, app *korifiv1alpha1.CFApp, guid string) (*korifiv1alpha1.CFBuild, error) {
	build, err := requireStaged(r.Store.GetBuildInSpace(ctx, r.Caller, app.Namespace, guid, repositories.DropletResourceType))
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	// A space also contains droplets of other apps.
	if build.Spec.AppRef.Name != app.Name {
		return nil, nil
	}
	return build, nil
}

func getDroplet(ctx context.Context, r *Request) (Response, error) {
	build, err := requireStaged(r.Store.GetBuild(ctx, r.Caller, r.guid(), repositories.DropletResourceType))
	return present(r, presenter.ForDroplet, build, err)
}

func setCurrentDroplet(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	var body payloads.Relationship
	if err := payloads.DecodeJSON(r.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	build, err := r.findDropletOfApp(ctx, app, body.Data.GUID)
	switch {
	case err != nil:
		return Response{}, err
	case build == nil:
		return Response{}, apierrors.NewUnprocessableEntity("Unable to assign current droplet. Ensure the droplet exists and belongs to this app.")
	}
	_, err = r.Store.SetCurrentDroplet(ctx, r.Caller, app, build.Name)
	return respond(presenter.RelationshipTo(build.Name), err)
}

// listPackages lists the packages of the app in the path, or of the apps selected by the query.
func listPackages(ctx context.Context, r *Request) (Response, error) {
	var apps []*korifiv1alpha1.CFApp
	var err error
	if r.guid() == "" {
		apps, err = r.selectedApps(ctx)
	} else {
		apps = make([]*korifiv1alpha1.CFApp, 1)
		apps[0], err = r.Store.GetApp(ctx, r.Caller, r.guid())
	}
	if err != nil {
		return Response{}, err
	}
	var packages []*korifiv1alpha1.CFPackage
	for _, app := range apps {
		found, err := r.Store.ListPackagesOfApp(ctx, app)
		if err != nil {
			return Response{}, err
		}
		packages = append(packages, found...)
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFPackage]{
		items: packages,
		filters: map[string]func(*korifiv1alpha1.CFPackage) string{
			"guids":  func(p *korifiv1alpha1.CFPackage) string { return p.Name },
			"states": presenter.PackageStateOf,
			"types":  func(p *korifiv1alpha1.CFPackage) string { return string(p.Spec.Type) },
		},
		reversed: r.isReversed(),
	}, func(p *korifiv1alpha1.CFPackage) presenter.PackageResponse { return presenter.ForPackage(r.Base, p) })
}

func getPackage(ctx context.Context, r *Request) (Response, error) {
	found, err := r.Store.GetPackage(ctx, r.Caller, r.guid())
	return present(r, presenter.ForPackage, found, err)
}

// listPackageDroplets lists the droplets of a package.
func listPackageDroplets(ctx context.Context, r *Request) (Response, error) {
	from, err := r.Store.GetPackage(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	app, err := r.Store.GetAppInSpace(ctx, r.Caller, from.Namespace, from.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	builds, err := r.Store.ListBuildsOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return r.respondDroplets(builds, func(build *korifiv1alpha1.CFBuild) bool { return build.Spec.PackageRef.Name == from.Name })
}

// buildsOfQuery returns the builds of the apps selected by the query.
func (r *Request) buildsOfQuery(ctx context.Context) ([]*korifiv1alpha1.CFBuild, error) {
	apps, err := r.selectedApps(ctx)
	if err != nil {
		return nil, err
	}
	var builds []*korifiv1alpha1.CFBuild
	for _, app := range apps {
		found, err := r.Store.ListBuildsOfApp(ctx, app)
		if err != nil {
			return nil, err
		}
		builds = append(builds, found...)
	}
	return builds, nil
}

func listDroplets(ctx context.Context, r *Request) (Response, error) {
	builds, err := r.buildsOfQuery(ctx)
	if err != nil {
		return Response{}, err
	}
	return r.respondDroplets(builds, func(*korifiv1alpha1.CFBuild) bool { return true })
}

// selectedApps returns the apps in app_guids. Without that parameter, it returns all apps in the spaces selected by the
// query.
func (r *Request) selectedApps(ctx context.Context) ([]*korifiv1alpha1.CFApp, error) {
	if r.query().Has("app_guids") {
		return r.appsOfQuery(ctx, "app_guids")
	}
	spaces, err := r.visibleSpaces(ctx)
	if err != nil {
		return nil, err
	}
	return r.Store.ListApps(spaces)
}

// appsOfQuery returns the apps that are listed in a query parameter and visible to the caller.
func (r *Request) appsOfQuery(ctx context.Context, parameter string) ([]*korifiv1alpha1.CFApp, error) {
	var apps []*korifiv1alpha1.CFApp
	for _, guid := range payloads.ParseFilter(r.query(), parameter) {
		app, err := r.Store.GetApp(ctx, r.Caller, guid)
		if ignoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			apps = append(apps, app)
		}
	}
	return apps, nil
}

// listBuilds lists the builds of the apps selected by the query, including builds that have not been staged.
func listBuilds(ctx context.Context, r *Request) (Response, error) {
	builds, err := r.buildsOfQuery(ctx)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFBuild]{
		items: builds,
		filters: map[string]func(*korifiv1alpha1.CFBuild) string{
			"guids":         func(b *korifiv1alpha1.CFBuild) string { return b.Name },
			"states":        func(b *korifiv1alpha1.CFBuild) string { return string(presenter.BuildStateOf(b)) },
			"package_guids": func(b *korifiv1alpha1.CFBuild) string { return b.Spec.PackageRef.Name },
		},
		// In CF, builds have no labels. The labels of a CFBuild belong to its droplet.
		labelsOf: func(*korifiv1alpha1.CFBuild) map[string]string { return nil },
		reversed: r.isReversed(),
	}, func(b *korifiv1alpha1.CFBuild) presenter.BuildResponse { return presenter.ForBuild(r.Base, b) })
}

func listAppBuilds(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	builds, err := r.Store.ListBuildsOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFBuild]{
		items:    builds,
		filters:  map[string]func(*korifiv1alpha1.CFBuild) string{"states": func(b *korifiv1alpha1.CFBuild) string { return string(presenter.BuildStateOf(b)) }},
		labelsOf: func(*korifiv1alpha1.CFBuild) map[string]string { return nil }, reversed: r.isReversed(),
	}, func(b *korifiv1alpha1.CFBuild) presenter.BuildResponse { return presenter.ForBuild(r.Base, b) })
}

func listAppDroplets(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	builds, err := r.Store.ListBuildsOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return r.respondDroplets(builds, func(*korifiv1alpha1.CFBuild) bool { return true })
}

// respondDroplets lists the droplets of the builds for which isWanted returns true.
func (r *Request) respondDroplets(builds []*korifiv1alpha1.CFBuild, isWanted func(*korifiv1alpha1.CFBuild) bool) (Response, error) {
	builds = slices.DeleteFunc(builds, func(build *korifiv1alpha1.CFBuild) bool {
		return presenter.BuildStateOf(build) != korifiv1alpha1.StagedBuild || !isWanted(build)
	})
	return respondList(r, resourceList[*korifiv1alpha1.CFBuild]{items: builds, reversed: r.isReversed()},
		func(build *korifiv1alpha1.CFBuild) presenter.DropletResponse {
			return presenter.ForDroplet(r.Base, build)
		})
}

// matchResources returns an empty list, because the API keeps no files of earlier uploads.
func matchResources(context.Context, *Request) (Response, error) {
	response, err := ok(map[string]any{"resources": []struct{}{}})
	response.Status = http.StatusCreated
	return response, err
}

// copyPackage creates a package with the image of another package, for cf copy-source.
func copyPackage(ctx context.Context, r *Request, body payloads.PackageCreate) (Response, error) {
	from, err := r.Store.GetPackage(ctx, r.Caller, r.query().Get("source_guid"))
	if err != nil {
		return Response{}, err
	}
	app, err := r.Store.GetApp(ctx, r.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	switch {
	case from.Spec.Type != korifiv1alpha1.DockerPackage:
		return Response{}, apierrors.NewUnprocessableEntity("expected source_guid to be the GUID of a package with an image, because code cannot be copied; found a package of type " + string(from.Spec.Type) + "; push the code to the other app")
	case len(from.Spec.Source.Registry.ImagePullSecrets) > 0:
		return Response{}, apierrors.NewUnprocessableEntity("expected source_guid to be the GUID of a package without registry credentials, because credentials are not copied to another app; found a package with credentials; push the image with --docker-username")
	}
	if err := requireImages(app); err != nil {
		return Response{}, err
	}
	made, err := r.Store.CreatePackage(ctx, r.Caller, app, repositories.PackageImage{Name: from.Spec.Source.Registry.Image, Metadata: body.Metadata})
	return presentCreated(r, presenter.ForPackage, made, err)
}

func createPackage(ctx context.Context, r *Request, body payloads.PackageCreate) (Response, error) {
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	if r.query().Has("source_guid") {
		return copyPackage(ctx, r, body)
	}
	isCode := r.Builder != nil && body.Type == string(korifiv1alpha1.BitsPackage)
	switch {
	case !isCode && body.Type != string(korifiv1alpha1.DockerPackage):
		return Response{}, apierrors.NewUnprocessableEntity("expected a package of type docker, because no builder of source code is configured; found " + cmp.Or(body.Type, "none") + "; " + waysWithoutBuilder)
	case isCode && body.Data.Image != "":
		return Response{}, apierrors.NewUnprocessableEntity("expected no data.image, because the type of the package is bits; found an image; remove data.image")
	case !isCode && body.Data.Image == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected data.image, because the type of the package is docker; found none; set the image")
	case (body.Data.Username == "") != (body.Data.Password == ""):
		return Response{}, apierrors.NewUnprocessableEntity("expected both data.username and data.password, or neither; found only one; the cf client reads the password from CF_DOCKER_PASSWORD")
	}
	app, err := r.Store.GetApp(ctx, r.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	if isCode && app.Spec.Lifecycle.Type == korifiv1alpha1.DockerLifecycle {
		return Response{}, apierrors.NewUnprocessableEntity("expected a package of type docker, because the app has the lifecycle docker; found a package of type bits; push with --docker-image, or under another name")
	}
	if !isCode {
		if err := requireImages(app); err != nil {
			return Response{}, err
		}
	}
	made, err := r.Store.CreatePackage(ctx, r.Caller, app, repositories.PackageImage{
		Name: body.Data.Image, Username: body.Data.Username, Password: body.Data.Password, Metadata: body.Metadata,
	})
	return presentCreated(r, presenter.ForPackage, made, err)
}

func createBuild(ctx context.Context, r *Request, body payloads.BuildCreate) (Response, error) {
	from, err := r.Store.GetPackage(ctx, r.Caller, body.Package.GUID)
	if err != nil {
		return Response{}, err
	}
	app, err := r.Store.GetAppInSpace(ctx, r.Caller, from.Namespace, from.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	if state := presenter.PackageStateOf(from); state != presenter.ReadyPackage {
		return Response{}, apierrors.NewUnprocessableEntity("Cannot stage package whose state is not ready; found " + state + "; upload its code first")
	}
	build, err := r.Store.CreateBuild(ctx, r.Caller, app, from)
	return presentCreated(r, presenter.ForBuild, build, err)
}

// getBuild delays its response by at most maxHold, until the build is no longer being staged.
func getBuild(ctx context.Context, r *Request) (Response, error) {
	build, err := r.Store.GetBuild(ctx, r.Caller, r.guid(), repositories.BuildResourceType)
	if err != nil {
		return Response{}, err
	}
	holdCtx, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	err = r.Store.WatchUntil(holdCtx, build.Name, func() (bool, error) {
		newer, err := r.Store.GetBuild(ctx, r.Caller, build.Name, repositories.BuildResourceType)
		if err != nil {
			return false, err
		}
		build = newer
		return presenter.BuildStateOf(build) != korifiv1alpha1.StagingBuild, nil
	})
	return present(r, presenter.ForBuild, build, err)
}
