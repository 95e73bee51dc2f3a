// SPDX-License-Identifier: Apache-2.0

// Package build decides the droplet of a CFBuild, and the status of CFBuilds and CFPackages. It is pure; package
// controller observes and writes the status.
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

// Observed is a build with its package, which is nil if it does not exist.
type Observed struct {
	Build   *korifiv1alpha1.CFBuild
	Package *korifiv1alpha1.CFPackage
	// Answer is the registry's response about the package's image. It is only set if IsAboutImage returns true.
	Answer ImageAnswer
	// UsesKpack is true if kpack builds source code.
	UsesKpack bool
}

// ImageAnswer holds the metadata that a registry has returned for an image, or the reason why the metadata is unknown.
type ImageAnswer struct {
	// Image is the image with its digest. It is empty if the digest is unknown.
	Image string
	// Ports are the ports that the image exposes. The first port becomes the app's PORT.
	Ports []int32
	// Reason is the reason for the Pinned condition, or ImageMissingReason. It is empty if the digest is known.
	Reason string
	// Message describes the problem to users.
	Message string
}

// IsAboutImage reports whether the droplet of a build is an image whose metadata must be read from its registry.
func (o Observed) IsAboutImage() bool {
	status := o.Build.Status
	return status.Droplet == nil && status.State != korifiv1alpha1.FailedBuild && o.Package != nil && o.Package.Spec.Type == korifiv1alpha1.DockerPackage
}

// Plan is the new status of a build.
type Plan struct {
	Droplet            *korifiv1alpha1.Droplet
	State              korifiv1alpha1.BuildState
	Succeeded, Staging decision.Condition
	// Pinned is nil if the condition does not change.
	Pinned *decision.Condition
}

// Decide returns the new status of a build. The droplet of a package with an image is the image itself. For code,
// Decide keeps the droplet or the failure that the builder has reported.
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

// buildDroplet returns a droplet with the pinned image. If the registry did not resolve the image, the droplet keeps
// the tag, which nodes resolve at each start.
func buildDroplet(registry korifiv1alpha1.Registry, answer ImageAnswer) (*korifiv1alpha1.Droplet, *decision.Condition) {
	pinned := decision.False(answer.Reason, "nodes resolve the name of the image at each start of an instance, and EXPOSE is not read: "+answer.Message)
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
	return "the image exposes " + strings.Trim(fmt.Sprint(ports), "[]")
}

func joinSentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(sentence string) bool { return sentence == "" }), "; ")
}

func decideState(o Observed, droplet *korifiv1alpha1.Droplet) (korifiv1alpha1.BuildState, decision.Condition) {
	switch {
	case droplet != nil:
		return korifiv1alpha1.StagedBuild, decision.True(korifiv1alpha1.StagedReason, "the droplet exists")
	case o.IsAboutImage():
		return korifiv1alpha1.FailedBuild, decision.False(o.Answer.Reason, o.Answer.Message)
	case o.Build.Status.State == korifiv1alpha1.FailedBuild:
		return korifiv1alpha1.FailedBuild, explainFailure(o.Build)
	case o.Package == nil:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.PackageMissingReason,
			"expected the CFPackage "+o.Build.Spec.PackageRef.Name+", found none; waiting for it")
	case o.UsesKpack:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.BuiltByOthersReason,
			"the package contains source code, which kpack builds if this cluster serves images.kpack.io; "+
				"see the Image "+o.Build.Name)
	default:
		return korifiv1alpha1.StagingBuild, decision.Unknown(korifiv1alpha1.BuiltByOthersReason,
			"the package contains source code; another builder must set status.droplet")
	}
}

// explainFailure returns the recorded failure of the registry or the builder.
func explainFailure(b *korifiv1alpha1.CFBuild) decision.Condition {
	said := meta.FindStatusCondition(b.Status.Conditions, korifiv1alpha1.SucceededCondition)
	switch {
	case said == nil || said.Status != metav1.ConditionFalse || said.Message == "":
		return decision.False(korifiv1alpha1.BuildFailedReason, "the builder of the droplet reported a failure; create a new CFBuild")
	case said.Reason == korifiv1alpha1.ImageMissingReason:
		return decision.False(said.Reason, said.Message)
	default:
		return decision.False(korifiv1alpha1.BuildFailedReason, said.Message)
	}
}

// DecidePackageReady returns the Ready condition of a package, which is true if droplets can be built from it.
func DecidePackageReady(pkg *korifiv1alpha1.CFPackage) decision.Condition {
	if pkg.Spec.Source.Registry.Image == "" {
		return decision.False(korifiv1alpha1.SourceMissingReason,
			"expected the image with the source code in spec.source.registry.image, found none; the field is set when the code is uploaded")
	}
	return decision.True(korifiv1alpha1.SourceReadyReason, "the code is uploaded; droplets can be built from the image in spec.source.registry.image")
}
