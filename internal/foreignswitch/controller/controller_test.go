// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"io"
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
	"github.com/torpor-dev/torpor/internal/foreignswitch"
	"github.com/torpor-dev/torpor/internal/stopadapter"
	"github.com/torpor-dev/torpor/internal/testenv"
)

var suite testenv.Suite

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

const examples = "../../../examples/stopadapters"

// foreignObject is an object of a kind that has an example, and statuses of it.
type foreignObject struct {
	file, object string
	// stopping is neither asleep nor awake; empty where a stop is reached at once.
	stopping, asleep, awake string
}

func condition(kind, status, reason string) string {
	return `{"conditions": [{"type": "` + kind + `", "status": "` + status + `", "reason": "` + reason + `"}]}`
}

func listForeignObjects() []foreignObject {
	return []foreignObject{
		{"flux-kustomization", `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, spec: {interval: 10m, prune: true, path: ./}}`, "", `{}`, `{"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}`},
		{"flux-helmrelease", `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, spec: {interval: 10m, suspend: false}}`, "", `{}`, `{"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}`},
		{"argocd-application", `{apiVersion: argoproj.io/v1alpha1, kind: Application, spec: {project: default, syncPolicy: {automated: {prune: true, selfHeal: true}, retry: {limit: 5}}}}`, `{"operationState": {"phase": "Running"}}`, `{"operationState": {"phase": "Succeeded"}}`, `{"sync": {"status": "Synced"}}`},
		{"cnpg-cluster", `{apiVersion: postgresql.cnpg.io/v1, kind: Cluster, spec: {instances: 3}}`, `{"readyInstances": 2}`, condition("cnpg.io/hibernation", "True", "Hibernated"), `{"readyInstances": 3}`},
		{"strimzi-kafka", `{apiVersion: kafka.strimzi.io/v1, kind: Kafka, metadata: {annotations: {strimzi.io/node-pools: enabled}}, spec: {kafka: {version: 4.1.0}}}`, condition("Ready", "True", ""), condition("ReconciliationPaused", "True", ""), condition("Ready", "True", "")},
		{"keda-scaledobject", `{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {annotations: {autoscaling.keda.sh/paused: "false"}}, spec: {scaleTargetRef: {name: shop}, minReplicaCount: 0}}`, condition("Paused", "False", ""), condition("Paused", "True", ""), condition("Ready", "True", "")},
		{"crossplane-bucket", `{apiVersion: s3.aws.m.upbound.io/v1beta1, kind: Bucket, spec: {forProvider: {region: eu-central-1}}}`, condition("Synced", "True", "ReconcileSuccess"), condition("Synced", "False", "ReconcilePaused"), condition("Synced", "True", "ReconcileSuccess")},
		{"capi-cluster", `{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, spec: {controlPlaneEndpoint: {host: 10.0.0.1}}}`, condition("Paused", "False", "NotPaused"), condition("Paused", "True", "Paused"), condition("Paused", "False", "NotPaused")},
	}
}

// readExample returns the StopAdapter and the ClusterRole of an example.
func readExample(t *testing.T, name string) (*torporv1alpha1.StopAdapter, *rbacv1.ClusterRole) {
	t.Helper()
	file, err := os.Open(filepath.Join(examples, name+".yaml"))
	testenv.ExpectNoError(t, err)
	defer func() { _ = file.Close() }()
	adapter, role, in := &torporv1alpha1.StopAdapter{}, &rbacv1.ClusterRole{}, yaml.NewYAMLOrJSONDecoder(file, 4096)
	testenv.ExpectNoError(t, errors.Join(in.Decode(adapter), in.Decode(role)))
	return adapter, role
}

// TestEveryExampleStopsAndRestores has each adapter of the examples stop an object of its kind: dormant without the kind, forbidden without the
// rights; then the state, and an object that is what it was.
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
	if objects := listForeignObjects(); err != nil || len(files) != len(objects) {
		t.Fatalf("expected an object for each of %v, found %d (%v)", files, len(objects), err)
	}
	adapters := map[string]*torporv1alpha1.StopAdapter{}
	for _, o := range listForeignObjects() {
		adapters[o.file], _ = readExample(t, o.file)
		env.ExpectCreated(t, adapters[o.file])
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
	var granted rbacv1.ClusterRole // What kube-controller-manager does with the labels of the examples' roles.
	testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "torpor-stopadapters"}, &granted))
	for _, o := range listForeignObjects() {
		waitFor(adapters[o.file], torporv1alpha1.StopAdapterForbiddenReason)
		_, role := readExample(t, o.file)
		if role.Labels[torporv1alpha1.StopAdapterRoleLabel] != "true" {
			t.Errorf("%s: expected the label by which the role is aggregated, found %v", o.file, role.Labels)
		}
		granted.Rules = append(granted.Rules, role.Rules...)
	}
	testenv.ExpectNoError(t, env.Client.Update(t.Context(), &granted))
	for _, o := range listForeignObjects() {
		waitFor(adapters[o.file], torporv1alpha1.StopAdapterRunningReason)
		t.Run(o.file, func(t *testing.T) { stopAndRestore(t, env, namespace, adapters[o.file], o) })
	}
	t.Run("one that is deleted gives back what Slumbers stopped", func(t *testing.T) { releaseDeleted(t, env, namespace, adapters["flux-kustomization"]) })
	t.Run("one whose kind is gone goes", func(t *testing.T) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(adapters["cnpg-cluster"].Name)
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), crd))
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), adapters["cnpg-cluster"]))
		expectGone(t, env, adapters["cnpg-cluster"])
	})
	t.Run("one whose role is gone says so, and goes in the end", func(t *testing.T) {
		testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "torpor-stopadapters"}, &granted))
		a := adapters["strimzi-kafka"]
		granted.Rules = slices.DeleteFunc(granted.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, a.Spec.Target.Group) })
		testenv.ExpectNoError(t, env.Client.Update(t.Context(), &granted))
		kafkas := &unstructured.UnstructuredList{}
		kafkas.SetGroupVersionKind(schema.GroupVersionKind{Group: a.Spec.Target.Group, Version: a.Spec.Target.Version, Kind: a.Spec.Target.Kind + "List"})
		asManager, err := client.New(limited.Config, client.Options{Mapper: env.Client.RESTMapper()})
		testenv.ExpectNoError(t, err)
		testenv.Eventually(t, "the API server follows", func() error {
			return testenv.ErrorIf(!k8serrors.IsForbidden(asManager.List(t.Context(), kafkas)), "the manager may read them")
		})
		testenv.ExpectNoError(t, env.Client.Delete(t.Context(), a))
		env.WaitFor(t, "it says what it needs", a, func() error {
			c := meta.FindStatusCondition(a.Status.Conditions, torporv1alpha1.StopAdapterReadyCondition)
			return testenv.ErrorIf(c == nil || c.Reason != torporv1alpha1.StopAdapterForbiddenReason || !strings.Contains(c.Message, "without it the StopAdapter goes at"), "found %+v", c)
		})
		now.SetTime(time.Now().Add(releaseTimeout + time.Minute))
		expectGone(t, env, a)
		env.WaitForEvent(t, "default", foreignswitch.EventObjectsLeft, "Expected to give back what is stopped")
	})
	t.Log("One that makes no sense says so.")
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

// releaseDeleted has a Slumber and a person stop an object each, and deletes the adapter.
func releaseDeleted(t *testing.T, env *testenv.Environment, namespace string, adapter *torporv1alpha1.StopAdapter) {
	stop := torporv1alpha1.ScheduledStop{Slumber: "nights", Stops: []torporv1alpha1.StopRecord{{Since: metav1.NewTime(time.Now()), By: "Slumber nights", Requested: true}}}
	name, value, err := stopadapter.ScheduledAnnotation(stop, "nights")
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
			return testenv.ErrorIf(stopadapter.ReadSwitch(u).IsKept(u) != (who != "nobody"), "found %v", u.Object)
		})
	}
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), adapter))
	expectGone(t, env, adapter)
	for who, want := range map[string]string{"slumber": "<nil>", "alice": "true", "nobody": "<nil>"} {
		u := objects[who]
		testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u))
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "suspend")
		is := stopadapter.ReadSwitch(u)
		if found := fmt.Sprint(value); found != want || len(is.Scheduled) > 0 || is.IsKept(u) != (who == "alice") {
			t.Errorf("%s: expected suspend to be %s and no wish of a Slumber, found %s and %v", who, want, found, u.GetAnnotations())
		}
	}
	env.WaitForEvent(t, namespace, stopadapter.EventRestored, "the StopAdapter "+adapter.Name+" is deleted")
	env.WaitForEvent(t, namespace, stopadapter.EventLeftStopped, "a person has stopped it")
}

func stopAndRestore(t *testing.T, env *testenv.Environment, namespace string, adapter *torporv1alpha1.StopAdapter, o foreignObject) {
	kind, err := foreignswitch.NewKind(adapter)
	testenv.ExpectNoError(t, err)
	u := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(o.object), 4096).Decode(u); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	u.SetNamespace(namespace)
	u.SetName("x")
	env.ExpectCreated(t, u)
	before := u.DeepCopy()
	patch := func(data string) {
		t.Helper()
		testenv.ExpectNoError(t, env.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(data))))
	}
	report := func(status, want string) {
		t.Helper()
		data := client.RawPatch(types.MergePatchType, []byte(`{"status": null}`))
		set := client.RawPatch(types.MergePatchType, []byte(`{"status": `+strings.ReplaceAll(status, `"observedGeneration": 3`, `"observedGeneration": `+generationOf(u))+`}`))
		if o.file == "argocd-application" {
			testenv.ExpectNoError(t, errors.Join(env.Client.Patch(t.Context(), u, data), env.Client.Patch(t.Context(), u, set)))
		} else {
			testenv.ExpectNoError(t, errors.Join(env.Client.Status().Patch(t.Context(), u, data), env.Client.Status().Patch(t.Context(), u, set)))
		}
		state := kind.ReadState(u, time.Now())
		if found := map[bool]string{true: "asleep"}[state.IsAsleep] + map[bool]string{true: "awake"}[state.IsAwake]; found != want || !state.IsStoppable {
			t.Errorf("%s: expected %q, found %q: %+v", status, want, found, state)
		}
	}
	patch(`{"metadata": {"annotations": {"torpor.dev/stopped": "true"}}}`)
	env.WaitFor(t, "it is stopped", u, func() error {
		return testenv.ErrorIf(!stopadapter.ReadSwitch(u).IsKept(u), "found %v", u.Object)
	})
	if o.stopping != "" {
		report(o.stopping, "")
	}
	report(o.asleep, "asleep")
	patch(`{"metadata": {"annotations": {"torpor.dev/stopped": null}}}`)
	env.WaitFor(t, "it is restored", u, func() error {
		return testenv.ErrorIf(len(stopadapter.ReadSwitch(u).Saved) > 0, "found %v", u.Object)
	})
	report(o.awake, "awake")
	annotations := u.GetAnnotations()
	delete(annotations, torporv1alpha1.StopsAnnotation) // The record stays.
	if diff := cmp.Diff(before.GetAnnotations(), annotations); diff != "" && len(before.GetAnnotations())+len(annotations) > 0 {
		t.Errorf("annotations (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before.Object["spec"], u.Object["spec"]); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
}

func generationOf(u *unstructured.Unstructured) string {
	data, _ := u.MarshalJSON()
	_, after, _ := strings.Cut(string(data), `"generation":`)
	number, _, _ := strings.Cut(after, ",")
	return number
}
