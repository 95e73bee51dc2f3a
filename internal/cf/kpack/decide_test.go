// SPDX-License-Identifier: Apache-2.0

package kpack

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

const digest = "registry.example.com/droplets/dev@sha256:abc"

func exampleSettings() Settings {
	return Settings{Repository: "registry.example.com/droplets", BuilderKind: "ClusterBuilder", Builder: "default", ServiceAccount: "builds", PullSecret: "login"}
}

func exampleBuild() *korifiv1alpha1.CFBuild {
	return &korifiv1alpha1.CFBuild{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "b1", UID: types.UID("uid-of-b1")},
		Spec: korifiv1alpha1.CFBuildSpec{
			AppRef: korifiv1alpha1.Reference{Name: "shop"}, StagingMemoryMB: 512, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle},
		},
	}
}

func examplePackage() *korifiv1alpha1.CFPackage {
	return &korifiv1alpha1.CFPackage{Spec: korifiv1alpha1.CFPackageSpec{
		Type:   korifiv1alpha1.BitsPackage,
		Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "registry.example.com/code:1", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "code"}}}},
	}}
}

// exampleImage returns an Image with the given Ready condition and message.
func exampleImage(ready metav1.ConditionStatus, message string) *Progress {
	return &Progress{IsOwned: true, IsCurrent: true, Status: ImageStatus{
		LatestImage: digest, LatestStack: "jammy", LatestBuildRef: "b1-build-1", Conditions: []Condition{{Type: "BuilderReady", Status: metav1.ConditionTrue}, {Type: "Ready", Status: ready, Message: message}},
	}}
}

func TestDecide(t *testing.T) {
	droplet := &korifiv1alpha1.Droplet{
		Registry: korifiv1alpha1.Registry{Image: digest, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "login"}}}, Stack: "jammy",
		ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}},
	}
	for name, row := range map[string]struct {
		change func(*Observed)
		want   Plan
	}{
		"an Image is created for uploaded code": {func(*Observed) {}, Plan{Do: CreateImage, Rule: "create the Image"}},
		"a build with the docker lifecycle is not changed": {
			func(o *Observed) { o.Build.Spec.Lifecycle.Type = korifiv1alpha1.DockerLifecycle }, Plan{Rule: "no build of source code"},
		},
		"a build that is being deleted is not changed": {
			func(o *Observed) { o.Build.DeletionTimestamp = new(metav1.Unix(1, 0)) }, Plan{Rule: "no build of source code"},
		},
		"a build without a package waits":     {func(o *Observed) { o.Package = nil }, Plan{Rule: "wait for the source code"}},
		"a build without uploaded code waits": {func(o *Observed) { o.Package.Spec.Source.Registry.Image = "" }, Plan{Rule: "wait for the source code"}},
		"a docker package is not built":       {func(o *Observed) { o.Package.Spec.Type = korifiv1alpha1.DockerPackage }, Plan{Rule: "wait for the source code"}},
		"a build with chosen buildpacks fails": {
			func(o *Observed) { o.Build.Spec.Lifecycle.Data.Buildpacks = []string{"go", "java"} },
			Plan{Rule: "buildpacks cannot be chosen", Failure: "expected no buildpacks, because the ClusterBuilder default of kpack chooses them; found go, java; leave buildpacks out of the manifest"},
		},
		"an Image of another owner fails the build": {
			func(o *Observed) { o.Image = &Progress{} },
			Plan{Rule: "another object has the name of the Image", Failure: "expected no other Image of the name b1, found one that does not belong to the CFBuild; delete that Image, and build again"},
		},
		"a build waits while its Image is being deleted": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionTrue, ""); o.Image.IsDeleted = true },
			Plan{Rule: "wait for the end of a deleted Image"},
		},
		"an outdated status of an Image has no effect": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionTrue, ""); o.Image.IsCurrent = false },
			Plan{Rule: "wait for the status of a new Image"},
		},
		"a build waits while kpack runs": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionUnknown, "b1-build-1 is executing") }, Plan{Rule: "kpack is building"},
		},
		"a build waits while its Image has no conditions": {func(o *Observed) { o.Image = &Progress{IsOwned: true, IsCurrent: true} }, Plan{Rule: "kpack is building"}},
		"a built image becomes the droplet": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionTrue, "") }, Plan{Rule: "image is built", Droplet: droplet},
		},
		"an image without a digest does not become the droplet": {
			func(o *Observed) {
				o.Image = exampleImage(metav1.ConditionTrue, "")
				o.Image.Status.LatestImage = "registry.example.com/droplets/dev"
			},
			Plan{Rule: "kpack is building"},
		},
		"a failure has the message of the Image": {
			func(o *Observed) {
				o.Image, o.Failure = exampleImage(metav1.ConditionFalse, " no buildpack detected the code\n"), "unused"
			},
			Plan{Rule: "kpack has failed", Failure: "kpack did not build the Image b1: no buildpack detected the code"},
		},
		"a failure has the message of the Build if the Image has none": {
			func(o *Observed) { o.Image, o.Failure = exampleImage(metav1.ConditionFalse, ""), "exit status 20" },
			Plan{Rule: "kpack has failed", Failure: "kpack did not build the Image b1: exit status 20"},
		},
		"a failure without a message in Image and Build is reported": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionFalse, "") },
			Plan{Rule: "kpack has failed", Failure: "kpack did not build the Image b1: kpack reported no reason"},
		},
		"a long message is truncated": {
			func(o *Observed) { o.Image = exampleImage(metav1.ConditionFalse, strings.Repeat("é", 1000)) },
			Plan{Rule: "kpack has failed", Failure: "kpack did not build the Image b1: " + strings.Repeat("é", maxMessageBytes/2)},
		},
		"the Image of a staged build is deleted": {
			func(o *Observed) {
				o.Build.Status.Droplet, o.Image = droplet, exampleImage(metav1.ConditionTrue, "")
			},
			Plan{Rule: "delete the Image of a staged build", Do: DeleteImage},
		},
		"an Image of another owner is kept after the build": {
			func(o *Observed) { o.Build.Status.Droplet, o.Image = droplet, &Progress{} }, Plan{Rule: "build has ended"},
		},
		"a staged build without an Image is complete": {func(o *Observed) { o.Build.Status.Droplet = droplet }, Plan{Rule: "build has ended"}},
		"a failure is final, and its Image is kept": {
			func(o *Observed) {
				o.Build.Status.State, o.Image = korifiv1alpha1.FailedBuild, exampleImage(metav1.ConditionTrue, "")
			},
			Plan{Rule: "build has ended"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := Observed{Build: exampleBuild(), Package: examplePackage(), Settings: exampleSettings()}
			row.change(&o)
			if diff := cmp.Diff(row.want, Decide(o)); diff != "" {
				t.Errorf("expected another plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildImage(t *testing.T) {
	build, pkg := exampleBuild(), examplePackage()
	image := BuildImage(build, pkg, exampleSettings())
	want := map[string]any{
		"tag": "registry.example.com/droplets/dev:b1", "serviceAccountName": "builds", "builder": map[string]any{"kind": "ClusterBuilder", "name": "default"},
		"source": map[string]any{"registry": map[string]any{"image": "registry.example.com/code:1", "imagePullSecrets": []any{map[string]any{"name": "code"}}}},
		"build":  map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "512Mi"}, "requests": map[string]any{"memory": "512Mi"}}},
	}
	if diff := cmp.Diff(want, image.Object["spec"]); diff != "" {
		t.Errorf("expected another spec (-want +got):\n%s", diff)
	}
	if progress, err := ReadProgress(build, image); err != nil || !progress.IsOwned || progress.IsDeleted {
		t.Errorf("expected an Image of the build, found %+v and the error %v", progress, err)
	}
	build.Spec.StagingMemoryMB, pkg.Spec.Source.Registry.ImagePullSecrets = 0, nil
	bare := BuildImage(build, pkg, exampleSettings()).Object
	if _, hasSize, _ := unstructured.NestedMap(bare, "spec", "build"); hasSize {
		t.Errorf("expected no size of a build without one, found %v", bare)
	}
	if _, hasSecrets, _ := unstructured.NestedSlice(bare, "spec", "source", "registry", "imagePullSecrets"); hasSecrets {
		t.Errorf("expected no pull Secrets of a package without one, found %v", bare)
	}
}

func TestStatusOfAnotherShapeIsAnError(t *testing.T) {
	image := NewImage()
	image.SetName("b1")
	image.Object["status"] = map[string]any{"conditions": "all is well"}
	if _, err := ReadProgress(exampleBuild(), image); err == nil || !strings.Contains(err.Error(), "Image b1: expected a status of kpack.io/v1alpha2") {
		t.Errorf("expected an error that names the Image and the version, found %v", err)
	}
}

func TestParseSettings(t *testing.T) {
	if s, err := ParseSettings("", "no builder", "", ""); err != nil || s.IsEnabled() {
		t.Errorf("expected kpack to be disabled without a repository, found %+v and the error %v", s, err)
	}
	for repository, isValid := range map[string]bool{
		"registry.example.com": true, "registry.example.com:5000/a/b-c_d": true, "docker.io/team": true, "localhost:5000/droplets": true,
		"https://registry.example.com/a": false, "registry.example.com/a:1": false, "registry.example.com/a@sha256:0": false, "registry.example.com/": false, "Registry/a": false, " ": false,
	} {
		if _, err := ParseSettings(repository, DefaultBuilder, DefaultServiceAccount, ""); (err == nil) != isValid {
			t.Errorf("%q: expected it to be valid: %t, found %v", repository, isValid, err)
		}
	}
	for builder, isValid := range map[string]bool{"ClusterBuilder/base": true, "Builder/base": true, "base": false, "Store/base": false, "Builder/": false, "Builder/a/b": false} {
		if _, err := ParseSettings("registry.example.com", builder, DefaultServiceAccount, "login"); (err == nil) != isValid {
			t.Errorf("%q: expected it to be valid: %t, found %v", builder, isValid, err)
		}
	}
}
