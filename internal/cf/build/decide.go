// SPDX-License-Identifier: Apache-2.0

// Package build decides what the droplet of a CFBuild is, and what a CFBuild and a CFPackage report. It is pure; package
// controller beside it observes and writes the status.
package build

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Observed is a build and its package, which is nil if it is not there.
type Observed struct {
	Build   *korifiv1alpha1.CFBuild
	Package *korifiv1alpha1.CFPackage
	// Answer is what the registry says of the package's image, if IsAboutImage.
	Answer ImageAnswer
}

// ImageAnswer is what the registry of an image says about it, or why nothing is known.
type ImageAnswer struct {
	// Image is named by its digest; empty if that is not known.
	Image string
	// Ports the image says it listens on, the first being the one that an app is told.
	Ports []int32
	// Reason is that of Pinned, or ImageMissingReason; empty if the digest is known.
	Reason string
	// Message is what is wrong, for people.
	Message string
}

// IsAboutImage reports whether the droplet of a build is an image that its registry is asked about first.
func (o Observed) IsAboutImage() bool {
	status := o.Build.Status
	return status.Droplet == nil && status.State != korifiv1alpha1.FailedBuild && o.Package != nil && o.Package.Spec.Type == korifiv1alpha1.DockerPackage
}

// Plan is what the status of a build becomes.
type Plan struct {
	Droplet            *korifiv1alpha1.Droplet
	State              korifiv1alpha1.BuildState
	Succeeded, Staging decision.Condition
	// Pinned is nil where it stays as it is.
	Pinned *decision.Condition
}

// Decide makes the droplet of an image, which is the image itself. A droplet or a failure that another builder has filled in
// stays: Torpor builds nothing from code.
func Decide(o Observed) Plan {
	p := Plan{Droplet: o.Build.Status.Droplet}
	if o.IsAboutImage() && o.Answer.Reason != korifiv1alpha1.ImageMissingReason {
		p.Droplet, p.Pinned = buildDroplet(o.Package.Spec.Source.Registry, o.Answer)
	}
	p.State, p.Succeeded = decideState(o, p.Droplet)
	p.Staging = decision.False(p.Succeeded.Reason, p.Succeeded.Message)
	if p.State == korifiv1alpha1.StagingBuild {
		p.Staging.Status = metav1.ConditionTrue
	}
	return p
}

// buildDroplet takes the image as it was named where its registry does not say what that is: nodes then ask for it with each start.
func buildDroplet(registry korifiv1alpha1.Registry, answer ImageAnswer) (*korifiv1alpha1.Droplet, *decision.Condition) {
	pinned := decision.False(answer.Reason, "nodes ask what the name of the image leads to with each start of an instance, and EXPOSE is not read: "+answer.Message)
	if answer.Image != "" {
		registry.Image = answer.Image
		pinned = decision.True(korifiv1alpha1.ImagePinnedReason, joinSentences("instances run "+answer.Image, describePorts(answer.Ports), answer.Message))
	}
	return &korifiv1alpha1.Droplet{Registry: registry, ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}}, Ports: answer.Ports}, &pinned
}

func describePorts(ports []int32) string {
	if len(ports) == 0 {
		return ""
	}
	return "it says that it listens on " + strings.Trim(fmt.Sprint(ports), "[]")
}

func joinSentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(sentence string) bool { return sentence == "" }), "; ")
}

func decideState(o Observed, droplet *korifiv1alpha1.Droplet) (korifiv1alpha1.BuildState, decision.Condition) {
	switch {
	case droplet != nil:
		return korifiv1alpha1.StagedBuild, decision.True(korifiv1alpha1.StagedReason, "the droplet is there")
	case o.IsAboutImage():
		return korifiv1alpha1.FailedBuild, decision.False(o.Answer.Reason, o.Answer.Message)
	case o.Build.Status.State == korifiv1alpha1.FailedBuild:
		return korifiv1alpha1.FailedBuild, explainFailure(o.Build)
	case o.Package == nil:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.PackageMissingReason,
			"expected the CFPackage "+o.Build.Spec.PackageRef.Name+", found none; it is waited for")
	default:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.BuiltByOthersReason, "the package holds code; somebody else has to fill in status.droplet")
	}
}

// explainFailure keeps what was found when the registry was asked, and otherwise what the builder says in its condition.
func explainFailure(b *korifiv1alpha1.CFBuild) decision.Condition {
	said := meta.FindStatusCondition(b.Status.Conditions, korifiv1alpha1.SucceededCondition)
	switch {
	case said == nil || said.Status != metav1.ConditionFalse || said.Message == "":
		return decision.False(korifiv1alpha1.BuildFailedReason, "whoever builds the droplet says that it failed; make a new CFBuild")
	case said.Reason == korifiv1alpha1.ImageMissingReason:
		return decision.False(said.Reason, said.Message)
	default:
		return decision.False(korifiv1alpha1.BuildFailedReason, said.Message)
	}
}

// DecidePackageReady returns the condition Ready of a package: whether droplets can be made from it.
func DecidePackageReady(pkg *korifiv1alpha1.CFPackage) decision.Condition {
	if pkg.Spec.Source.Registry.Image == "" {
		return decision.False(korifiv1alpha1.SourceMissingReason,
			"expected the image that holds the code in spec.source.registry.image, found none; whoever uploads the code names it")
	}
	return decision.True(korifiv1alpha1.SourceReadyReason, "droplets are made from the image in spec.source.registry")
}
