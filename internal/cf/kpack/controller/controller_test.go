// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	buildcontroller "github.com/torpor-dev/torpor/internal/cf/build/controller"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const builtImage = "registry.example.com/droplets/dev@sha256:abc"

// kpackEnv runs Kubernetes' garbage collector and the controllers of builds. The test acts as kpack.
type kpackEnv struct {
	*testenv.Environment
	namespace string
}

// TestKpackBuildsCode starts before kpack is installed. Builds wait for kpack's API, and then succeed or fail in
// different ways.
func TestKpackBuildsCode(t *testing.T) {
	e := &kpackEnv{Environment: testenv.StartControlPlane(t, 0)}
	e.InstallCRDs(t)
	e.namespace = e.CreateNamespace(t)
	settings, err := kpack.ParseSettings("registry.example.com/droplets", kpack.DefaultBuilder, "builds", "login")
	testenv.ExpectNoError(t, err)
	// The manager has only the rights of its roles.
	e.ApplyFeatureRoles(t, e.namespace, "cf")
	e.ApplyFeatureRoles(t, e.namespace, "../kpack")
	as := *e.Environment
	as.Config = e.ImpersonateUser(e.ApplyManagerRoles(t, e.namespace, "workloads"))
	testenv.StartManager(t, &as, func(mgr manager.Manager) error {
		_, err := conditional.Setup(mgr, conditional.Served(kpack.ImageKind()), Controller{Clock: clock.RealClock{}, Settings: settings}.SetupWithManager, conditional.Name("kpack"))
		return errors.Join(err, buildcontroller.Controller{Clock: clock.RealClock{}, UsesKpack: true}.SetupWithManager(mgr))
	})
	early := e.createBuild(t, "early")
	e.waitForBuild(t, early, korifiv1alpha1.StagingBuild, "kpack builds if this cluster serves images.kpack.io")
	e.InstallCRDs(t, "testdata/kpack.yaml")

	t.Run("a build that began before kpack was installed gets its droplet", func(t *testing.T) {
		image := e.waitForImage(t, early)
		e.report(t, image, metav1.ConditionTrue, "", builtImage)
		e.expectDroplet(t, early)
		e.waitUntilGone(t, image)
	})
	t.Run("a slow build is being staged until kpack has finished", func(t *testing.T) {
		build := e.createBuild(t, "slow")
		image := e.waitForImage(t, build)
		tag, _, _ := unstructured.NestedString(image.Object, "spec", "tag")
		source, _, _ := unstructured.NestedString(image.Object, "spec", "source", "registry", "image")
		memory, _, _ := unstructured.NestedString(image.Object, "spec", "build", "resources", "limits", "memory")
		if tag != "registry.example.com/droplets/"+e.namespace+":slow" || source != "registry.example.com/code:slow" || memory != "64Mi" {
			t.Errorf("expected the tag of the build, its code and 64Mi, found %s, %s and %s", tag, source, memory)
		}
		e.report(t, image, metav1.ConditionUnknown, "slow-build-1 is executing", "")
		e.waitForBuild(t, build, korifiv1alpha1.StagingBuild, "see the Image slow")
		e.report(t, image, metav1.ConditionTrue, "", builtImage)
		e.expectDroplet(t, build)
	})
	t.Run("a failed build reports the message of its Image", func(t *testing.T) {
		build := e.createBuild(t, "failed")
		image := e.waitForImage(t, build)
		e.report(t, image, metav1.ConditionFalse, "no buildpack detected the code", "")
		e.waitForBuild(t, build, korifiv1alpha1.FailedBuild, "kpack did not build the Image failed: no buildpack detected the code")
		// A later success in kpack changes nothing, because a failure is final.
		e.report(t, image, metav1.ConditionTrue, "", builtImage)
		e.expectDroplet(t, e.buildNow(t, "after-failed"))
		e.waitForBuild(t, build, korifiv1alpha1.FailedBuild, "no buildpack detected the code")
		testenv.ExpectNoError(t, e.Client.Delete(t.Context(), build))
		e.waitUntilGone(t, image)
	})
	t.Run("a failed build reports the message of its Build", func(t *testing.T) {
		build := e.createBuild(t, "silent")
		run := &unstructured.Unstructured{Object: map[string]any{}}
		run.SetGroupVersionKind(kpack.BuildKind())
		run.SetNamespace(e.namespace)
		run.SetName("silent-build-1")
		e.ExpectCreated(t, run)
		run.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Succeeded", "status": "False", "message": "exit status 20"}}}
		testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), run))
		e.report(t, e.waitForImage(t, build), metav1.ConditionFalse, "", "")
		e.waitForBuild(t, build, korifiv1alpha1.FailedBuild, "kpack did not build the Image silent: exit status 20")
	})
	t.Run("a deleted Image is created again", func(t *testing.T) {
		build := e.createBuild(t, "deleted")
		first := e.waitForImage(t, build)
		testenv.ExpectNoError(t, e.Client.Delete(t.Context(), first))
		var second *unstructured.Unstructured
		testenv.Eventually(t, "there is another Image", func() error {
			second = e.waitForImage(t, build)
			return testenv.ErrorIf(second.GetUID() == first.GetUID(), "found the first one")
		})
		e.report(t, second, metav1.ConditionTrue, "", builtImage)
		e.expectDroplet(t, build)
	})
	t.Run("a build waits until the code is uploaded", func(t *testing.T) {
		build := e.createBuildOf(t, "late", "")
		e.waitForBuild(t, build, korifiv1alpha1.StagingBuild, "the package contains source code")
		pkg := &korifiv1alpha1.CFPackage{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "late"}}
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), pkg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"source":{"registry":{"image":"registry.example.com/code:late"}}}}`))))
		e.report(t, e.waitForImage(t, build), metav1.ConditionTrue, "", builtImage)
		e.expectDroplet(t, build)
	})
	t.Run("a build fails if kpack refuses its Image", func(t *testing.T) {
		build := e.createBuild(t, strings.Repeat("long", 11))
		e.waitForBuild(t, build, korifiv1alpha1.FailedBuild, "kpack refused the Image: ")
	})
	t.Run("a build fails if its Image has another owner", func(t *testing.T) {
		other := kpack.NewImage()
		other.SetNamespace(e.namespace)
		other.SetName("taken")
		other.Object["spec"] = map[string]any{
			"tag": "registry.example.com/other:1", "builder": map[string]any{"kind": "Builder", "name": "own"}, "source": map[string]any{"registry": map[string]any{"image": "code"}},
		}
		e.ExpectCreated(t, other)
		e.waitForBuild(t, e.createBuild(t, "taken"), korifiv1alpha1.FailedBuild, "found one that does not belong to the CFBuild")
		testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	})
}

func (e *kpackEnv) createBuild(t *testing.T, name string) *korifiv1alpha1.CFBuild {
	t.Helper()
	return e.createBuildOf(t, name, "registry.example.com/code:"+name)
}

// createBuildOf creates a build with a package. The image code contains the package's code.
func (e *kpackEnv) createBuildOf(t *testing.T, name, code string) *korifiv1alpha1.CFBuild {
	t.Helper()
	at, app := metav1.ObjectMeta{Namespace: e.namespace, Name: name}, korifiv1alpha1.Reference{Name: "shop"}
	build := &korifiv1alpha1.CFBuild{ObjectMeta: at, Spec: korifiv1alpha1.CFBuildSpec{
		PackageRef: korifiv1alpha1.Reference{Name: name}, AppRef: app, StagingMemoryMB: 64, Lifecycle: korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.BuildpackLifecycle},
	}}
	pkg := &korifiv1alpha1.CFPackage{ObjectMeta: at, Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.BitsPackage, AppRef: app, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: code}},
	}}
	e.ExpectCreated(t, pkg, build)
	return build
}

// buildNow creates a build that kpack completes immediately.
func (e *kpackEnv) buildNow(t *testing.T, name string) *korifiv1alpha1.CFBuild {
	t.Helper()
	build := e.createBuild(t, name)
	e.report(t, e.waitForImage(t, build), metav1.ConditionTrue, "", builtImage)
	return build
}

func (e *kpackEnv) waitForImage(t *testing.T, build *korifiv1alpha1.CFBuild) *unstructured.Unstructured {
	t.Helper()
	image := kpack.NewImage()
	testenv.Eventually(t, "there is an Image of "+build.Name, func() error {
		return e.Client.Get(t.Context(), client.ObjectKeyFromObject(build), image)
	})
	if !metav1.IsControlledBy(image, build) {
		t.Errorf("expected an Image of the build, found the owners %v", image.GetOwnerReferences())
	}
	return image
}

// report updates the status of an Image as kpack does.
func (e *kpackEnv) report(t *testing.T, image *unstructured.Unstructured, ready metav1.ConditionStatus, message, latest string) {
	t.Helper()
	condition := map[string]any{"type": "Ready", "status": string(ready), "lastTransitionTime": "2026-07-01T12:00:00Z"}
	if message != "" {
		condition["message"] = message
	}
	image.Object["status"] = map[string]any{
		"observedGeneration": image.GetGeneration(), "conditions": []any{condition}, "latestImage": latest, "latestStack": "jammy",
		"latestBuildRef": image.GetName() + "-build-1", "buildCounter": int64(1), "latestBuildImageGeneration": image.GetGeneration(),
	}
	testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), image))
}

func (e *kpackEnv) waitForBuild(t *testing.T, build *korifiv1alpha1.CFBuild, state korifiv1alpha1.BuildState, message string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s is %s", build.Name, state), func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(build), build); err != nil {
			return err
		}
		c := meta.FindStatusCondition(build.Status.Conditions, korifiv1alpha1.SucceededCondition)
		return testenv.ErrorIf(build.Status.State != state || c == nil || !strings.Contains(c.Message, message), "found %+v", build.Status)
	})
}

func (e *kpackEnv) expectDroplet(t *testing.T, build *korifiv1alpha1.CFBuild) {
	t.Helper()
	e.waitForBuild(t, build, korifiv1alpha1.StagedBuild, "the droplet exists")
	d := build.Status.Droplet
	if d.Registry.Image != builtImage || d.Stack != "jammy" || len(d.ProcessTypes) != 1 || len(d.Registry.ImagePullSecrets) != 1 || d.Registry.ImagePullSecrets[0] != (corev1.LocalObjectReference{Name: "login"}) {
		t.Errorf("expected the built image with its stack, one process and the pull Secret, found %+v", d)
	}
}

func (e *kpackEnv) waitUntilGone(t *testing.T, image *unstructured.Unstructured) {
	t.Helper()
	testenv.Eventually(t, "the Image "+image.GetName()+" is gone", func() error {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(image), image)
		return testenv.ErrorIf(!k8serrors.IsNotFound(err), "found it (%v)", err)
	})
}
