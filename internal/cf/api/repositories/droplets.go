// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// GetBuild is a build that the caller may see; thing is what the caller asked for, since a droplet is a build that is done.
func (s *Store) GetBuild(ctx context.Context, caller *authorization.Caller, guid, thing string) (*korifiv1alpha1.CFBuild, error) {
	var found korifiv1alpha1.CFBuildList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the build: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(thing)
	}
	return &found.Items[0], s.checkVisible(ctx, caller, found.Items[0].Namespace, Builds, thing)
}

// ListBuildsOfApp are those of an app, the oldest first.
func (s *Store) ListBuildsOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFBuild, error) {
	var found korifiv1alpha1.CFBuildList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	all := pointersTo(found.Items)
	sortByAge(all)
	return all, nil
}

// GetPackage is a package that the caller may see.
func (s *Store) GetPackage(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFPackage, error) {
	var found korifiv1alpha1.CFPackageList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the package: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(PackageResourceType)
	}
	return &found.Items[0], s.checkVisible(ctx, caller, found.Items[0].Namespace, Packages, PackageResourceType)
}

// ListPackagesOfApp are those of an app, the oldest first.
func (s *Store) ListPackagesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFPackage, error) {
	var found korifiv1alpha1.CFPackageList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	all := pointersTo(found.Items)
	sortByAge(all)
	return all, nil
}
