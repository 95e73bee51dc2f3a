// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// maxUnused is the number of newest builds, and of newest packages, that an app keeps even if no revision needs
	// them, because a push may be in progress.
	maxUnused = 5
	// maxExpired limits the builds, and also the packages, that one reconciliation deletes. Each deletion triggers a
	// reconciliation.
	maxExpired = 50
)

// planRetention returns the builds that neither a revision nor the app's spec needs, and the packages from which no
// kept build was created. It keeps the maxUnused newest of each, and returns at most maxExpired of each.
func planRetention(o Observed) (builds []*korifiv1alpha1.CFBuild, packages []*korifiv1alpha1.CFPackage) {
	inUse := dropletsInUse(o.App)
	sources := map[string]bool{}
	slices.SortFunc(o.Builds, func(a, b korifiv1alpha1.CFBuild) int { return revision.CompareByAge(&b, &a) })
	for i := range o.Builds {
		b := &o.Builds[i]
		if i < maxUnused || inUse[b.Name] {
			sources[b.Spec.PackageRef.Name] = true
		} else if len(builds) < maxExpired {
			builds = append(builds, b)
		}
	}
	slices.SortFunc(o.Packages, func(a, b korifiv1alpha1.CFPackage) int { return revision.CompareByAge(&b, &a) })
	for i := range o.Packages {
		if p := &o.Packages[i]; i >= maxUnused && !sources[p.Name] && len(packages) < maxExpired {
			packages = append(packages, p)
		}
	}
	return builds, packages
}

// dropletsInUse returns the names of the droplets of the recorded revisions, of the current revision and of the app's
// spec. A droplet has the name of its build.
func dropletsInUse(app *korifiv1alpha1.CFApp) map[string]bool {
	inUse := map[string]bool{app.Annotations[torporv1alpha1.DropletAnnotation]: true}
	if ref := app.Spec.CurrentDropletRef; ref != nil {
		inUse[ref.Name] = true
	}
	for _, r := range revision.ListRestarts(app) {
		inUse[r.Droplet] = true
	}
	delete(inUse, "")
	return inUse
}

// ListUnseenDroplets returns the droplets in use whose build was not observed. Either the build was deleted, or the
// cache of builds is older than the cache of packages. In the second case, packages of existing builds look unused.
func ListUnseenDroplets(o Observed) []string {
	unseen := dropletsInUse(o.App)
	for i := range o.Builds {
		delete(unseen, o.Builds[i].Name)
	}
	return slices.Sorted(maps.Keys(unseen))
}
