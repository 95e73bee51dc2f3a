// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	// maxUnused is how many of the newest builds and packages an app keeps although no revision runs them: a
	// push may be in progress.
	maxUnused = 5
	// maxExpired bounds the deletions of one pass; the deletion of a build triggers the next pass.
	maxExpired = 50
)

// planRetention returns the builds that no remembered revision needs, and the packages from which no
// remaining build was made.
func planRetention(o Observed) (builds []*korifiv1alpha1.CFBuild, packages []*korifiv1alpha1.CFPackage) {
	inUse := map[string]bool{o.App.Annotations[torporv1alpha1.DropletAnnotation]: true}
	if ref := o.App.Spec.CurrentDropletRef; ref != nil {
		inUse[ref.Name] = true
	}
	for _, r := range revision.ListRestarts(o.App) {
		inUse[r.Droplet] = true
	}
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
