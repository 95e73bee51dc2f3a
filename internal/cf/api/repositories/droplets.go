// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// GetBuild returns a build that the caller may see. resourceType is what the client asked for: a droplet is a build that is
// staged.
func (s *Store) GetBuild(ctx context.Context, caller *authorization.Caller, guid, resourceType string) (*korifiv1alpha1.CFBuild, error) {
	return find[*korifiv1alpha1.CFBuild](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFBuildList{}, noun: "build", resource: buildsResource, resourceType: resourceType,
	})
}

// ListBuildsOfApp returns the builds of an app, the oldest first.
func (s *Store) ListBuildsOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFBuild, error) {
	return listOfApp[*korifiv1alpha1.CFBuild](ctx, s, app, "list builds", &korifiv1alpha1.CFBuildList{})
}

// GetPackage returns a package that the caller may see.
func (s *Store) GetPackage(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFPackage, error) {
	return find[*korifiv1alpha1.CFPackage](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFPackageList{}, noun: "package", resource: packagesResource, resourceType: PackageResourceType,
	})
}

// ListPackagesOfApp returns the packages of an app, the oldest first.
func (s *Store) ListPackagesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFPackage, error) {
	return listOfApp[*korifiv1alpha1.CFPackage](ctx, s, app, "list packages", &korifiv1alpha1.CFPackageList{})
}

// CreatePackage names an image that an app may run.
func (s *Store) CreatePackage(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, image string) (*korifiv1alpha1.CFPackage, error) {
	return create(ctx, s, caller, &korifiv1alpha1.CFPackage{ObjectMeta: ownedByApp(app, newOrderedGUID()), Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.DockerPackage, AppRef: korifiv1alpha1.Reference{Name: app.Name},
		Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: image}},
	}})
}

// CreateBuild requests a droplet from a package; the build's controller makes it.
func (s *Store) CreateBuild(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, from *korifiv1alpha1.CFPackage) (*korifiv1alpha1.CFBuild, error) {
	build := &korifiv1alpha1.CFBuild{ObjectMeta: ownedByApp(app, newOrderedGUID()), Spec: korifiv1alpha1.CFBuildSpec{
		PackageRef: korifiv1alpha1.Reference{Name: from.Name}, AppRef: from.Spec.AppRef, StagingMemoryMB: defaultMemoryMB, StagingDiskMB: defaultDiskMB,
		Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle},
	}}
	build.Labels[korifiv1alpha1.PackageGUIDLabel] = from.Name
	return create(ctx, s, caller, build)
}
