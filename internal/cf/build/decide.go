// SPDX-License-Identifier: Apache-2.0

// Package build decides what the droplet of a CFBuild is, and what a CFBuild and a CFPackage report. It is pure; package
// controller beside it observes and writes the status.
package build

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Observed is a build and its package, which is nil if it is not there.
type Observed struct {
	Build   *korifiv1alpha1.CFBuild
	Package *korifiv1alpha1.CFPackage
}

// Plan is what the status of a build becomes.
type Plan struct {
	Droplet            *korifiv1alpha1.Droplet
	State              korifiv1alpha1.BuildState
	Succeeded, Staging decision.Condition
}

// Decide makes the droplet of an image, which is the image itself. A droplet or a failure that another builder has filled in
// stays: Torpor builds nothing from code.
func Decide(o Observed) Plan {
	p := Plan{Droplet: o.Build.Status.Droplet}
	if p.Droplet == nil && o.Package != nil && o.Package.Spec.Type == korifiv1alpha1.DockerPackage {
		p.Droplet = &korifiv1alpha1.Droplet{
			Registry: o.Package.Spec.Source.Registry, ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
		}
	}
	p.State, p.Succeeded = decideState(o, p.Droplet)
	p.Staging = decision.False(p.Succeeded.Reason, p.Succeeded.Message)
	if p.State == korifiv1alpha1.StagingBuild {
		p.Staging.Status = metav1.ConditionTrue
	}
	return p
}

func decideState(o Observed, droplet *korifiv1alpha1.Droplet) (korifiv1alpha1.BuildState, decision.Condition) {
	switch {
	case droplet != nil:
		return korifiv1alpha1.StagedBuild, decision.True(korifiv1alpha1.StagedReason, "the droplet is there")
	case o.Build.Status.State == korifiv1alpha1.FailedBuild:
		return korifiv1alpha1.FailedBuild, decision.False(korifiv1alpha1.BuildFailedReason, explainFailure(o.Build))
	case o.Package == nil:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.PackageMissingReason,
			"expected the CFPackage "+o.Build.Spec.PackageRef.Name+", found none; it is waited for")
	default:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.BuiltByOthersReason, "the package holds code; somebody else has to fill in status.droplet")
	}
}

// explainFailure returns what the builder says in its condition.
func explainFailure(b *korifiv1alpha1.CFBuild) string {
	if said := meta.FindStatusCondition(b.Status.Conditions, korifiv1alpha1.SucceededCondition); said != nil && said.Status == metav1.ConditionFalse && said.Message != "" {
		return said.Message
	}
	return "whoever builds the droplet says that it failed; make a new CFBuild"
}

// DecidePackageReady returns the condition Ready of a package: whether droplets can be made from it.
func DecidePackageReady(pkg *korifiv1alpha1.CFPackage) decision.Condition {
	if pkg.Spec.Source.Registry.Image == "" {
		return decision.False(korifiv1alpha1.SourceMissingReason,
			"expected the image that holds the code in spec.source.registry.image, found none; whoever uploads the code names it")
	}
	return decision.True(korifiv1alpha1.SourceReadyReason, "droplets are made from the image in spec.source.registry")
}
