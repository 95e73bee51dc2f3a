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

// Build is a build that the caller may see; thing is what the caller asked for, since a droplet is a build that is done.
func (s *Store) Build(ctx context.Context, caller *authorization.Caller, guid, thing string) (*korifiv1alpha1.CFBuild, error) {
	var found korifiv1alpha1.CFBuildList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the build: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NotFound(thing)
	}
	return &found.Items[0], s.visible(ctx, caller, found.Items[0].Namespace, Builds, thing)
}

// BuildsOf are those of an app, the oldest first.
func (s *Store) BuildsOf(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFBuild, error) {
	var found korifiv1alpha1.CFBuildList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list builds: %w", err)
	}
	all := pointers(found.Items)
	oldestFirst(all)
	return all, nil
}

// Package is a package that the caller may see.
func (s *Store) Package(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFPackage, error) {
	var found korifiv1alpha1.CFPackageList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return nil, fmt.Errorf("find the package: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NotFound(PackageThing)
	}
	return &found.Items[0], s.visible(ctx, caller, found.Items[0].Namespace, Packages, PackageThing)
}

// PackagesOf are those of an app, the oldest first.
func (s *Store) PackagesOf(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFPackage, error) {
	var found korifiv1alpha1.CFPackageList
	if err := s.cache.List(ctx, &found, client.InNamespace(app.Namespace), client.MatchingFields{byApp: app.Name}); err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	all := pointers(found.Items)
	oldestFirst(all)
	return all, nil
}
