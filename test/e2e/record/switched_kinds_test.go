// SPDX-License-Identifier: Apache-2.0

package record

import (
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// switchedKinds returns the kinds of other projects' controllers: built-in kinds of Kubernetes, and one with a
// StopAdapter.
func switchedKinds() []kind {
	return []kind{deployments(), statefulSets(), cronJobs(), kustomizations()}
}

// switchedKind returns a kind that is stopped by an annotation.
func switchedKind(name string, list func() client.ObjectList, build func(types.NamespacedName) client.Object) kind {
	set := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{torporv1alpha1.StoppedAnnotation: value}}}
	}
	notes := []string{torporv1alpha1.RequestedByAnnotation}
	return kind{
		name:  name,
		build: func(_ testing.TB, h *hub, name string) client.Object { return build(h.name(name)) },
		list:  list,
		stop:  set("true"), start: set("false"), notes: notes, startNotes: notes, isStoppedWhenNew: true,
		isStopped: func(o client.Object) bool { return fieldswitch.IsAsked(o) },
		records: func(o client.Object) [][]torporv1alpha1.StopRecord {
			return [][]torporv1alpha1.StopRecord{fieldswitch.ReadSwitch(o).Records}
		},
	}
}

func podTemplate() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "a", Image: "example.com/a"}}},
	}
}

func metaOf(name types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
}

func deployments() kind {
	k := switchedKind("Deployment", func() client.ObjectList { return &appsv1.DeploymentList{} }, func(name types.NamespacedName) client.Object {
		return &appsv1.Deployment{ObjectMeta: metaOf(name), Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: metav1.SetAsLabelSelector(podTemplate().Labels), Template: podTemplate(),
		}}
	})
	k.isScaled = true
	return k
}

func statefulSets() kind {
	k := switchedKind("StatefulSet", func() client.ObjectList { return &appsv1.StatefulSetList{} }, func(name types.NamespacedName) client.Object {
		return &appsv1.StatefulSet{ObjectMeta: metaOf(name), Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), Selector: metav1.SetAsLabelSelector(podTemplate().Labels), Template: podTemplate(),
		}}
	})
	k.isScaled = true
	return k
}

func cronJobs() kind {
	return switchedKind("CronJob", func() client.ObjectList { return &batchv1.CronJobList{} }, func(name types.NamespacedName) client.Object {
		template := podTemplate()
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.CronJob{ObjectMeta: metaOf(name), Spec: batchv1.CronJobSpec{
			Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}},
		}}
	})
}

func fluxKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: kind}
}

// kustomizations returns the kind of Flux with a StopAdapter in the examples.
func kustomizations() kind {
	k := switchedKind("Kustomization", func() client.ObjectList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(fluxKind("KustomizationList"))
		return list
	}, func(name types.NamespacedName) client.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"interval": "10m", "prune": true, "path": "./"}}}
		u.SetGroupVersionKind(fluxKind("Kustomization"))
		u.SetNamespace(name.Namespace)
		u.SetName(name.Name)
		return u
	})
	k.argument = "kustomizations.kustomize.toolkit.fluxcd.io"
	return k
}

// installForeignKinds installs the CRDs for the StopAdapters in the examples, and permits stops of one of them.
func (h *hub) installForeignKinds(t testing.TB) {
	t.Helper()
	h.InstallCRDs(t, "../../../internal/switches/stopadapter/controller/testdata/crds.yaml")
	h.ApplyManifest(t, filepath.Join("..", "examples", "stopadapters", "flux-kustomization.yaml"))
}
