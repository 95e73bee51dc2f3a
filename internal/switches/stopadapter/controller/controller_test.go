// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/stopadapter"
	testenv "github.com/torpor-dev/torpor/test/env"
)

var suite testenv.Suite

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

const examples = "../../../../examples/stopadapters"

// readRole returns the ClusterRole of an example StopAdapter, and checks that the role for viewers has the same
// resources.
func readRole(t *testing.T, name string, adapter *torporv1alpha1.StopAdapter) *rbacv1.ClusterRole {
	t.Helper()
	file, err := os.Open(filepath.Join(examples, name+".yaml"))
	testenv.ExpectNoError(t, err)
	defer func() { _ = file.Close() }()
	role, viewer, in := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}, yaml.NewYAMLOrJSONDecoder(file, 4096)
	testenv.ExpectNoError(t, errors.Join(in.Decode(new(any)), in.Decode(role), in.Decode(viewer)))
	want := []rbacv1.PolicyRule{{APIGroups: []string{adapter.Spec.Target.Group}, Resources: []string{adapter.Spec.Target.Resource}, Verbs: []string{"get", "list", "watch"}}}
	if diff := cmp.Diff(want, viewer.Rules); diff != "" || viewer.Labels[torporv1alpha1.SwitchViewerRoleLabel] != "true" {
		t.Errorf("%s: expected the role for viewers of its objects, with its label, found %v and other rules (-want +found):\n%s", name, viewer.Labels, diff)
	}
	return role
}

// TestEveryExampleStopsAndRestores has each example StopAdapter stop an object of its kind and restore it. Before
// that, the adapter reports the missing kind, and then the missing permissions.
func TestEveryExampleStopsAndRestores(t *testing.T) {
	env := testenv.Start(t)
	namespace := env.CreateNamespace(t)
	limited := *env
	limited.Config = env.ImpersonateUser(env.ApplyManagerRoles(t, "default", "workloads"))
	now := clocktesting.NewFakePassiveClock(time.Now())
	stop := testenv.StartManager(t, &limited, func(mgr manager.Manager) error {
		return Controller{Clock: now, Manager: mgr}.SetupWithManager(mgr)
	})
	defer stop()
	files, err := filepath.Glob(examples + "/*.yaml")
	if objects := testenv.ListForeignObjects(); err != nil || len(files) != len(objects) {
		t.Fatalf("expected an object for each of %v, found %d (%v)", files, len(objects), err)
	}
	adapters := map[string]*torporv1alpha1.StopAdapter{}
	for _, o := range testenv.ListForeignObjects() {
		adapters[o.Example] = testenv.ReadStopAdapter(t, o.Example)
		env.ExpectCreated(t, adapters[o.Example])
	}
	waitFor := func(a *torporv1alpha1.StopAdapter, reason string) {
		t.Helper()
		env.WaitFor(t, a.Name+" is "+reason, a, func() error {
			c := meta.FindStatusCondition(a.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition)
			return testenv.ErrorIf(c == nil || c.Reason != reason, "found %+v", c)
		})
	}
	for _, a := range adapters {
		waitFor(a, torporv1alpha1.StopAdapterDormantReason)
	}
	env.InstallCRDs(t, "testdata/crds.yaml")
	var granted rbacv1.ClusterRole // As kube-controller-manager aggregates the examples' roles by their labels.
	testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "torpor-stopadapters"}, &granted))
	for _, o := range testenv.ListForeignObjects() {
		waitFor(adapters[o.Example], torporv1alpha1.StopAdapterForbiddenReason)
		role := readRole(t, o.Example, adapters[o.Example])
		if role.Labels[torporv1alpha1.StopAdapterRoleLabel] != "true" {
			t.Errorf("%s: expected the label by which the role is aggregated, found %v", o.Example, role.Labels)
		}
		granted.Rules = append(granted.Rules, role.Rules...)
	}
	global := &torporv1alpha1.StopAdapter{ObjectMeta: metav1.ObjectMeta{Name: "storageclasses.storage.k8s.io"}, Spec: torporv1alpha1.StopAdapterSpec{
		Target: torporv1alpha1.StopAdapterTarget{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Resource: "storageclasses"},
		Stop:   []torporv1alpha1.StopOperation{{Op: torporv1alpha1.RemoveOperation, Path: "/metadata/labels/awake"}},
	}}
	env.ExpectCreated(t, global)
	granted.Rules = append(granted.Rules, rbacv1.PolicyRule{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: []string{"get", "list", "watch", "patch"}})
	testenv.ExpectNoError(t, env.Client.Update(t.Context(), &granted))
	waitFor(global, torporv1alpha1.StopAdapterFailedReason)
	if found := global.Status.Conditions[0].Message; !strings.Contains(found, "StorageClass is cluster-scoped") {
		t.Errorf("expected that a kind without namespaces is refused, found %q", found)
	}
	for _, o := range testenv.ListForeignObjects() {
		waitFor(adapters[o.Example], torporv1alpha1.StopAdapterRunningReason)
		t.Run(o.Example, func(t *testing.T) { stopAndRestore(t, env, namespace, adapters[o.Example], o) })
	}
	t.Run("a deleted adapter restores the objects that Slumbers stopped", func(t *testing.T) { releaseDeleted(t, env, namespace, adapters["flux-kustomization"]) })
	t.Run("a deleted adapter whose kind is no longer served is removed", func(t *testing.T) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(adapters["cnpg-cluster"].Name)
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), crd))
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), adapters["cnpg-cluster"]))
		expectGone(t, env, adapters["cnpg-cluster"])
	})
	t.Run("a deleted adapter without permissions reports them as missing, and is removed after a timeout", func(t *testing.T) {
		testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "torpor-stopadapters"}, &granted))
		a := adapters["strimzi-kafka"]
		granted.Rules = slices.DeleteFunc(granted.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, a.Spec.Target.Group) })
		testenv.ExpectNoError(t, env.Client.Update(t.Context(), &granted))
		kafkas := &unstructured.UnstructuredList{}
		kafkas.SetGroupVersionKind(schema.GroupVersionKind{Group: a.Spec.Target.Group, Version: a.Spec.Target.Version, Kind: a.Spec.Target.Kind + "List"})
		asManager, err := client.New(limited.Config, client.Options{Mapper: env.Client.RESTMapper()})
		testenv.ExpectNoError(t, err)
		testenv.Eventually(t, "the manager has lost the permission", func() error {
			return testenv.ErrorIf(!k8serrors.IsForbidden(asManager.List(t.Context(), kafkas)), "the manager may read them")
		})
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), a))
		env.WaitFor(t, "the adapter reports the missing permissions", a, func() error {
			c := meta.FindStatusCondition(a.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition)
			return testenv.ErrorIf(c == nil || c.Reason != torporv1alpha1.StopAdapterForbiddenReason || !strings.Contains(c.Message, "the StopAdapter is removed at"), "found %+v", c)
		})
		now.SetTime(time.Now().Add(releaseTimeout + time.Minute))
		expectGone(t, env, a)
		env.WaitForEvent(t, "default", stopadapter.EventObjectsLeft, "Expected to restore the stopped objects")
	})
	t.Log("An invalid adapter reports its error.")
	a := adapters["capi-cluster"]
	testenv.ExpectNoError(t, env.Client.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"state": {"asleep": "object."}}}`))))
	waitFor(a, torporv1alpha1.StopAdapterInvalidReason)
}

func expectGone(t *testing.T, env *testenv.Environment, a *torporv1alpha1.StopAdapter) {
	t.Helper()
	testenv.Eventually(t, a.Name+" is gone", func() error {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(a), a)
		return testenv.ErrorIf(!k8serrors.IsNotFound(err), "found %v, %v: %v", a.Finalizers, a.Status.Conditions, err)
	})
}

// releaseDeleted has a Slumber and a user stop one object each, and deletes the adapter.
func releaseDeleted(t *testing.T, env *testenv.Environment, namespace string, adapter *torporv1alpha1.StopAdapter) {
	stop := torporv1alpha1.ScheduledStop{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Now()), By: "Slumber nights", Requested: true}}}
	name, value, err := stoprecord.ScheduledAnnotation(stop, "nights")
	testenv.ExpectNoError(t, err)
	objects := map[string]*unstructured.Unstructured{}
	for who, annotation := range map[string][2]string{"slumber": {name, value}, "alice": {torporv1alpha1.StoppedAnnotation, "true"}, "nobody": {"example.com/a", "b"}} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"interval": "10m", "prune": true, "path": "./"}}}
		u.SetAPIVersion("kustomize.toolkit.fluxcd.io/v1")
		u.SetKind("Kustomization")
		u.SetNamespace(namespace)
		u.SetName(who)
		u.SetAnnotations(map[string]string{annotation[0]: annotation[1]})
		env.ExpectCreated(t, u)
		objects[who] = u
		env.WaitFor(t, who+" has stopped it or not", u, func() error {
			return testenv.ErrorIf(fieldswitch.ReadSwitch(u).IsKept(u) != (who != "nobody"), "found %v", u.Object)
		})
	}
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), adapter))
	expectGone(t, env, adapter)
	for who, want := range map[string]string{"slumber": "<nil>", "alice": "true", "nobody": "<nil>"} {
		u := objects[who]
		testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u))
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "suspend")
		is := fieldswitch.ReadSwitch(u)
		if found := fmt.Sprint(value); found != want || len(is.Scheduled) > 0 || is.IsKept(u) != (who == "alice") {
			t.Errorf("%s: expected suspend to be %s and no wish of a Slumber, found %s and %v", who, want, found, u.GetAnnotations())
		}
	}
	env.WaitForEvent(t, namespace, fieldswitch.EventRestored, "the StopAdapter "+adapter.Name+" is deleted")
	env.WaitForEvent(t, namespace, fieldswitch.EventLeftStopped, "a user has stopped the object")
}

func stopAndRestore(t *testing.T, env *testenv.Environment, namespace string, adapter *torporv1alpha1.StopAdapter, o testenv.ForeignObject) {
	kind, err := stopadapter.NewKind(adapter)
	testenv.ExpectNoError(t, err)
	u := o.Build(t, types.NamespacedName{Namespace: namespace, Name: "x"})
	env.ExpectCreated(t, u)
	before := u.DeepCopy()
	patch := func(data string) {
		t.Helper()
		testenv.ExpectNoError(t, env.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(data))))
	}
	report := func(status, want string) {
		t.Helper()
		env.ReportForeignStatus(t, u, status)
		state := kind.ReadState(u, time.Now())
		if found := map[bool]string{true: "asleep"}[state.IsAsleep] + map[bool]string{true: "awake"}[state.IsAwake]; found != want || !state.IsStoppable {
			t.Errorf("%s: expected %q, found %q: %+v", status, want, found, state)
		}
	}
	patch(`{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`)
	env.WaitFor(t, "the object is stopped", u, func() error {
		return testenv.ErrorIf(!fieldswitch.ReadSwitch(u).IsKept(u), "found %v", u.Object)
	})
	if o.Stopping != "" {
		report(o.Stopping, "")
	}
	report(o.Asleep, "asleep")
	patch(`{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
	env.WaitFor(t, "the object is restored", u, func() error {
		return testenv.ErrorIf(len(fieldswitch.ReadSwitch(u).Saved) > 0, "found %v", u.Object)
	})
	report(o.Awake, "awake")
	annotations := u.GetAnnotations()
	delete(annotations, torporv1alpha1.StopsAnnotation) // The record of stops is not removed.
	if diff := cmp.Diff(before.GetAnnotations(), annotations); diff != "" && len(before.GetAnnotations())+len(annotations) > 0 {
		t.Errorf("annotations (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object["spec"], u.Object["spec"]); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
}
