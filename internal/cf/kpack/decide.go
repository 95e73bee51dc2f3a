// SPDX-License-Identifier: Apache-2.0

// Package kpack decides how kpack builds the droplet of a CFBuild whose package contains source code. It is pure;
// package controller observes and acts. Both use kpack only through its CustomResourceDefinitions:
// https://github.com/buildpacks-community/kpack/blob/main/docs/image.md
package kpack

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Observed is a build with its package and its kpack Image.
type Observed struct {
	Build    *korifiv1alpha1.CFBuild
	Settings Settings
	// Package is nil if it does not exist.
	Package *korifiv1alpha1.CFPackage
	// Image is the Image with the build's name. It is nil if it does not exist.
	Image *Progress
	// Failure is the message of the Image's newest Build. It is set if the Image has failed without a message.
	Failure string
}

// Action is a change that the controller makes to the Image.
type Action int

// These are the actions on the Image.
const (
	DoNothing Action = iota
	CreateImage
	DeleteImage
)

// Plan is the next action, and the result of a finished build.
type Plan struct {
	Do Action
	// Droplet is set if the build has succeeded. Failure is set if it has failed.
	Droplet *korifiv1alpha1.Droplet
	Failure string
	Rule    string
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	plan, name := decision.First(Rules(), o)
	plan.Rule = name
	return plan
}

// Rules returns the decision rules. The first that matches is used.
func Rules() []decision.Rule[Observed, Plan] {
	return []decision.Rule[Observed, Plan]{
		{Name: "no build of source code", When: isOtherBuild, Then: wait},
		{Name: "delete the Image of a staged build", When: isImageLeft, Then: deleteImage},
		{Name: "build has ended", When: hasEnded, Then: wait},
		{Name: "wait for the source code", When: lacksSource, Then: wait},
		{Name: "buildpacks cannot be chosen", When: namesBuildpacks, Then: refuseBuildpacks},
		{Name: "create the Image", When: lacksImage, Then: createImage},
		{Name: "another object has the name of the Image", When: isNameTaken, Then: refuseName},
		{Name: "wait for the end of a deleted Image", When: isImageDeleted, Then: wait},
		{Name: "wait for the status of a new Image", When: isStatusOld, Then: wait},
		{Name: "image is built", When: isBuilt, Then: setDroplet},
		{Name: "kpack has failed", When: hasFailed, Then: reportFailure},
		{Name: "kpack is building", When: decision.Always[Observed], Then: wait},
	}
}

// isOtherBuild matches builds of images, and builds that are being deleted. The controller changes neither of them.
func isOtherBuild(o Observed) bool {
	return o.Build.Spec.Lifecycle.Type != korifiv1alpha1.BuildpackLifecycle || !o.Build.DeletionTimestamp.IsZero()
}

// isImageLeft matches staged builds that still have an Image. kpack would rebuild the Image for each new version of the
// builder, and nothing would use the result.
func isImageLeft(o Observed) bool {
	return o.Build.Status.Droplet != nil && o.Image != nil && o.Image.IsOwned && !o.Image.IsDeleted
}

// hasEnded matches builds with a droplet, which never changes, and failed builds, because a failure is final. The Image
// of a failed build is kept for its logs.
func hasEnded(o Observed) bool {
	return o.Build.Status.Droplet != nil || o.Build.Status.State == korifiv1alpha1.FailedBuild
}

// lacksSource matches builds whose package does not exist, is not of type bits, or has no source code yet.
func lacksSource(o Observed) bool {
	return o.Package == nil || o.Package.Spec.Type != korifiv1alpha1.BitsPackage ||
		o.Package.Spec.Source.Registry.Image == ""
}

// namesBuildpacks matches builds with a list of buildpacks. An Image cannot select buildpacks, because its builder
// defines them.
func namesBuildpacks(o Observed) bool { return len(o.Build.Spec.Lifecycle.Data.Buildpacks) > 0 }

func lacksImage(o Observed) bool     { return o.Image == nil }
func isNameTaken(o Observed) bool    { return !o.Image.IsOwned }
func isImageDeleted(o Observed) bool { return o.Image.IsDeleted }
func isStatusOld(o Observed) bool    { return !o.Image.IsCurrent }

// isBuilt matches Images that are ready and whose result has a digest. Without a digest, the tag could move.
func isBuilt(o Observed) bool {
	status := o.Image.Status
	return status.Ready().Status == metav1.ConditionTrue && strings.Contains(status.LatestImage, "@")
}

func hasFailed(o Observed) bool { return o.Image.Status.Ready().Status == metav1.ConditionFalse }

func wait(Observed) Plan        { return Plan{} }
func createImage(Observed) Plan { return Plan{Do: CreateImage} }
func deleteImage(Observed) Plan { return Plan{Do: DeleteImage} }

func refuseBuildpacks(o Observed) Plan {
	return Plan{Failure: fmt.Sprintf("expected no buildpacks, because the %s %s of kpack chooses them; found %s; "+
		"leave buildpacks out of the manifest",
		o.Settings.BuilderKind, o.Settings.Builder, strings.Join(o.Build.Spec.Lifecycle.Data.Buildpacks, ", "))}
}

func refuseName(o Observed) Plan {
	return Plan{Failure: fmt.Sprintf("expected no other Image of the name %s, "+
		"found one that does not belong to the CFBuild; delete that Image, and build again", o.Build.Name)}
}

// setDroplet returns a plan with the droplet of the built image. The droplet has a web process, which runs the image's
// default command.
func setDroplet(o Observed) Plan {
	droplet := &korifiv1alpha1.Droplet{
		Registry: korifiv1alpha1.Registry{Image: o.Image.Status.LatestImage}, Stack: o.Image.Status.LatestStack,
		ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
	}
	if o.Settings.PullSecret != "" {
		droplet.Registry.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.Settings.PullSecret}}
	}
	return Plan{Droplet: droplet}
}

func reportFailure(o Observed) Plan {
	message := cmp.Or(limitMessage(o.Image.Status.Ready().Message), limitMessage(o.Failure), "kpack reported no reason")
	return Plan{Failure: "kpack did not build the Image " + o.Build.Name + ": " + message}
}

// LacksReason reports whether the Image has failed without a message. In this case, its newest Build has the message.
func LacksReason(image *Progress) bool {
	ready := image.Status.Ready()
	return image.IsOwned && ready.Status == metav1.ConditionFalse && ready.Message == "" &&
		image.Status.LatestBuildRef != ""
}
