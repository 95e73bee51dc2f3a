// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/kpack"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// An app has one process for each process type of its droplet. A worker process starts with zero instances and has
// neither a port nor a health check. A restart applies to all processes.
func TestDropletBringsItsProcesses(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	build := e.createBuild(t, a.name+"-2", "")
	e.waitForBuild(t, build, korifiv1alpha1.StagingBuild, metav1.ConditionUnknown, korifiv1alpha1.BuiltByOthersReason)
	build.Status.Droplet = &korifiv1alpha1.Droplet{
		Registry:     korifiv1alpha1.Registry{Image: image},
		ProcessTypes: []korifiv1alpha1.ProcessType{{Type: korifiv1alpha1.WebProcess}, {Type: "worker", Command: "./work"}},
	}
	if err := e.Client.SubResource("status").Update(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	a.patchApp(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":"%s-2"}}}`, a.name))
	worker := *a
	worker.process = revision.ProcessName(a.name, "worker")
	testenv.Eventually(t, "the worker is there", func() error {
		return e.Client.Get(t.Context(), client.ObjectKey{Namespace: e.namespace, Name: worker.process}, &korifiv1alpha1.CFProcess{})
	})
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	if n := len(worker.listProcessPods(t)); n != 0 {
		t.Errorf("expected no worker before a scale, found %d", n)
	}
	worker.setInstances(t, 2)
	a.waitForInstances(t, 3)
	for _, p := range worker.listProcessPods(t) {
		c := p.Spec.Containers[0]
		if len(c.Ports) != 0 || c.StartupProbe != nil || c.LivenessProbe != nil || strings.Join(c.Command, " ") != "/bin/sh -c ./work" {
			t.Errorf("expected a command without ports and probes, found %+v", c)
		}
		for _, e := range c.Env {
			if e.Name == "PORT" {
				t.Errorf("expected no port, found %s", e.Value)
			}
		}
	}
	h := a.watchHistory(t)
	a.requestRestart(t, "twice")
	a.waitUntilRunning(t)
	a.expectOnlyRevision(t, "2")
	if n := len(worker.listProcessPods(t)); n != 2 {
		t.Errorf("expected 2 workers of the new revision, found %d", n)
	}
	if _, overlap := h.measureOverlap(); overlap > 0 {
		t.Logf("the processes of two revisions overlapped for %s; each drains by itself", overlap)
	}
}

// listProcessPods returns the Pods of the process.
func (a *app) listProcessPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var own []corev1.Pod
	for _, p := range a.listPods(t) {
		if p.Labels[korifiv1alpha1.ProcessGUIDLabel] == a.process {
			own = append(own, p)
		}
	}
	return own
}

// A repeatedly pushed app keeps the droplets of its recorded revisions, its five newest droplets, and the packages of
// all of these.
func TestOldBuildsAndPackagesGo(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	const pushes, deployed = 30, 3
	wanted := map[string]bool{a.name: true}
	for i := range pushes {
		name := fmt.Sprintf("%s-%02d", a.name, i)
		e.createBuildOf(t, a.name, name, image)
		if i < deployed {
			a.patchApp(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":%q}},"metadata":{"annotations":{%q:%q}}}`, name, torporv1alpha1.RestartRequestAnnotation, name))
			a.waitUntilRunning(t)
		}
		if i < deployed || i >= pushes-5 {
			wanted[name] = true
		}
	}
	testenv.Eventually(t, "unneeded builds and packages are gone", func() error {
		var builds korifiv1alpha1.CFBuildList
		var packages korifiv1alpha1.CFPackageList
		if err := errors.Join(e.Client.List(t.Context(), &builds, client.InNamespace(e.namespace)), e.Client.List(t.Context(), &packages, client.InNamespace(e.namespace))); err != nil {
			return err
		}
		left, sources := map[string]bool{}, map[string]bool{}
		for i := range builds.Items {
			if builds.Items[i].Spec.AppRef.Name == a.name {
				left[builds.Items[i].Name] = true
			}
		}
		for i := range packages.Items {
			if packages.Items[i].Spec.AppRef.Name == a.name {
				sources[packages.Items[i].Name] = true
			}
		}
		return testenv.ErrorIf(!maps.Equal(left, wanted) || !maps.Equal(sources, wanted), "expected %d, found %d builds and %d packages", len(wanted), len(left), len(sources))
	})
	for _, r := range a.getApp(t).Status.Restarts {
		if !wanted[r.Droplet] {
			t.Errorf("expected the droplet of every revision, found none of %+v", r)
		}
	}
}

// A package reports whether it refers to an image. A build reports whether its droplet exists, whether another project
// builds it, or why it failed.
func TestPackagesAndBuildsReportTheirState(t *testing.T) {
	e := shared.Get(t)
	docker := e.createBuild(t, "staging-docker", image)
	e.waitForBuild(t, docker, korifiv1alpha1.StagedBuild, metav1.ConditionTrue, korifiv1alpha1.StagedReason)
	bits := e.createBuild(t, "staging-bits", "")
	e.waitForBuild(t, bits, korifiv1alpha1.StagingBuild, metav1.ConditionUnknown, korifiv1alpha1.BuiltByOthersReason)
	bits.Status.State = korifiv1alpha1.FailedBuild
	if err := e.Client.SubResource("status").Update(t.Context(), bits); err != nil {
		t.Fatal(err)
	}
	e.waitForBuild(t, bits, korifiv1alpha1.FailedBuild, metav1.ConditionFalse, korifiv1alpha1.BuildFailedReason)
	lost := docker.DeepCopy()
	lost.ObjectMeta = metav1.ObjectMeta{Namespace: e.namespace, Name: "staging-lost"}
	lost.Spec.PackageRef.Name = "staging-nowhere"
	if err := e.Client.Create(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	e.waitForBuild(t, lost, korifiv1alpha1.StagingBuild, metav1.ConditionUnknown, korifiv1alpha1.PackageMissingReason)
	for name, want := range map[string]metav1.ConditionStatus{"staging-docker": metav1.ConditionTrue, "staging-bits": metav1.ConditionFalse} {
		testenv.Eventually(t, name+" reports its state", func() error {
			var pkg korifiv1alpha1.CFPackage
			if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: e.namespace, Name: name}, &pkg); err != nil {
				return fmt.Errorf("get: %w", err)
			}
			if ready := meta.FindStatusCondition(pkg.Status.Conditions, korifiv1alpha1.ReadyCondition); ready == nil || ready.Status != want {
				return fmt.Errorf("expected %s, found %+v", want, ready)
			}
			return nil
		})
	}
}

func (e *env) waitForBuild(t *testing.T, b *korifiv1alpha1.CFBuild, state korifiv1alpha1.BuildState, succeeded metav1.ConditionStatus, reason string) {
	t.Helper()
	testenv.Eventually(t, b.Name+" is "+string(state), func() error {
		if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			return fmt.Errorf("get: %w", err)
		}
		found := meta.FindStatusCondition(b.Status.Conditions, korifiv1alpha1.SucceededCondition)
		staging := meta.IsStatusConditionTrue(b.Status.Conditions, korifiv1alpha1.StagingCondition)
		if b.Status.State != state || found == nil || found.Status != succeeded || found.Reason != reason || staging != (state == korifiv1alpha1.StagingBuild) {
			return fmt.Errorf("found %+v", b.Status)
		}
		return nil
	})
}

// TestManagerStartsKpackWhenItsAPIIsServed creates a build before kpack's API is installed, and expects that the build
// proceeds after the installation.
func TestManagerStartsKpackWhenItsAPIIsServed(t *testing.T) {
	e := shared.Get(t)
	build := e.createBuild(t, "waits-for-kpack", "")
	e.waitForBuild(t, build, korifiv1alpha1.StagingBuild, metav1.ConditionUnknown, korifiv1alpha1.BuiltByOthersReason)
	said := meta.FindStatusCondition(build.Status.Conditions, korifiv1alpha1.SucceededCondition)
	if said == nil || !strings.Contains(said.Message, "images.kpack.io") {
		t.Errorf("expected a message that names images.kpack.io, found %+v", said)
	}
	pkg := &korifiv1alpha1.CFPackage{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: build.Spec.PackageRef.Name}}
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), pkg, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"source":{"registry":{"image":"registry.example.com/code:1"}}}}`))))
	e.InstallCRDs(t, "kpack/controller/testdata/kpack.yaml")
	built := kpack.NewImage()
	testenv.Eventually(t, "there is an Image of the build", func() error {
		return e.Client.Get(t.Context(), client.ObjectKeyFromObject(build), built)
	})
}

// Pods reference the app's environment by Secret. Its values never appear in conditions, events, LRPs, Pods or logs,
// even if the Secret cannot be read.
func TestSecretValuesStayInTheSecret(t *testing.T) {
	e := shared.Get(t)
	const value = "swordfish-7f3a"
	a := e.createApp(t, appOptions{instances: 1, state: stopped})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: a.name + "-env"}, StringData: map[string]string{"TOKEN": value, "PORT": value}}
	if err := e.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	a.patchApp(t, fmt.Sprintf(`{"spec":{"envSecretName":%q,"desiredState":"STARTED"}}`, secret.Name))
	a.waitUntilRunning(t)
	env := map[string]corev1.EnvVar{}
	for _, e := range a.listPods(t)[0].Spec.Containers[0].Env {
		env[e.Name] = e
	}
	if from := env["TOKEN"].ValueFrom; from == nil || from.SecretKeyRef == nil || from.SecretKeyRef.Name == secret.Name || from.SecretKeyRef.Key != "TOKEN" {
		t.Errorf("expected a reference to the revision's own Secret, found %+v", env["TOKEN"])
	}
	if env["PORT"].Value != "8080" || !strings.Contains(env["VCAP_APPLICATION"].Value, `"application_id":"`+a.name+`"`) {
		t.Errorf("expected a port and what the app is, found %+v and %+v", env["PORT"], env["VCAP_APPLICATION"])
	}
	if services, ok := env["VCAP_SERVICES"]; ok {
		t.Errorf("expected no services, found %+v", services)
	}
	if err := e.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	a.requestRestart(t, "once")
	testenv.Eventually(t, "the missing Secret is reported", func() error {
		ready := meta.FindStatusCondition(a.getProcess(t).Status.Conditions, korifiv1alpha1.ReadyCondition)
		if !strings.Contains(ready.Message, "spec.envSecretName") {
			return fmt.Errorf("found %+v", ready)
		}
		return nil
	})
	secret.ResourceVersion, secret.UID = "", ""
	if err := e.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	a.waitUntilRunning(t)
	for where, text := range e.collectWritten(t) {
		if strings.Contains(text, value) {
			t.Errorf("found a secret value in %s", where)
		}
	}
}

// collectWritten returns all objects that the manager has written for apps, and its log.
func (e *env) collectWritten(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"the log": e.log.String()}
	if all["the log"] == "" {
		t.Error("expected a log, found none")
	}
	for _, list := range []client.ObjectList{
		&korifiv1alpha1.CFAppList{}, &korifiv1alpha1.CFProcessList{}, &eiriniv1.LRPList{}, &corev1.PodList{}, &eventsv1.EventList{},
	} {
		if err := e.Client.List(t.Context(), list, client.InNamespace(e.namespace)); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if meta.LenList(list) == 0 {
			t.Errorf("expected some of %T, found none", list)
		}
		all[fmt.Sprintf("%T", list)] = string(text)
	}
	return all
}

// Deleting an app during a deployment deletes both revisions and ends the deployment.
func TestAppIsDeletedDuringADeployment(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2})
	a.waitUntilRunning(t)
	d := a.createUnendingDeployment(t)
	a.deleteAndWait(t)
	testenv.Eventually(t, "the deployment is over", func() error {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(d), d)
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		if d.Status.Value != "FINALIZED" || d.Status.Message != "the app does not exist or is being deleted" {
			return fmt.Errorf("found %+v", d.Status)
		}
		return nil
	})
}

// deleteAndWait deletes the app and expects that it exists until its Pods and LRPs are deleted.
func (a *app) deleteAndWait(t *testing.T) {
	t.Helper()
	found := a.getApp(t)
	if err := a.Client.Delete(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	a.waitUntilGone(t, found)
}

func (a *app) waitUntilGone(t *testing.T, found *korifiv1alpha1.CFApp) {
	t.Helper()
	testenv.Eventually(t, "the app is gone", func() error {
		err := a.requireGone(t, found)
		if err == nil && len(a.listPods(t))+len(a.listLRPs(t)) > 0 {
			t.Fatal("the app is gone before its Pods")
		}
		return err
	})
}

// Deleting an org deletes its spaces and their apps. An org, a space or an app exists until its contents are deleted.
func TestDeletedOrgDeletesItsSpacesAndApps(t *testing.T) {
	e := shared.Get(t)
	org := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "org-gone"}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "o"}}
	space := &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: "org-gone", Name: "space-gone"}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: "s"}}
	inside := *e
	inside.namespace = space.Name
	for _, obj := range []client.Object{org, space} {
		if err := e.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "the object has its namespace", func() error {
			return e.Client.Get(t.Context(), client.ObjectKey{Name: obj.GetName()}, &corev1.Namespace{})
		})
	}
	a := inside.createAppNamed(t, "app-in-space", appOptions{instances: 2, command: "HOLLOW_STOP=1s ./app"})
	a.waitUntilRunning(t)
	if err := e.Client.Delete(t.Context(), org); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the org is gone", func() error {
		left := len(a.listPods(t)) + len(a.listLRPs(t))
		if e.requireGone(t, space.DeepCopy()) == nil && left > 0 {
			t.Fatalf("the space is gone before %d Pods and LRPs", left)
		}
		return errors.Join(e.requireGone(t, org), e.requireGone(t, space), e.requireGone(t, &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: space.Name, Name: a.name}}))
	})
}
