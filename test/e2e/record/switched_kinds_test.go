// SPDX-License-Identifier: Apache-2.0

package record

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// switchedKinds returns the kinds of other projects' controllers: built-in kinds of Kubernetes, and one with a
// StopAdapter.
func switchedKinds() []kind {
	var all []kind
	for _, of := range kinds.ListWorkloads() {
		all = append(all, workload(of))
	}
	return append(all, kustomizations())
}

// switchedKind returns a kind that is stopped by an annotation.
func switchedKind(name string, list func() client.ObjectList, build func(testing.TB, types.NamespacedName) client.Object) kind {
	set := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{torporv1alpha1.StoppedAnnotation: value}}}
	}
	notes := []string{torporv1alpha1.RequestedByAnnotation}
	return kind{
		name:  name,
		build: func(t testing.TB, h *hub, name string) client.Object { return build(t, h.name(name)) },
		list:  list,
		stop:  set("true"), start: set("false"), notes: notes, startNotes: notes, isStoppedWhenNew: true,
		isStopped: func(o client.Object) bool { return fieldswitch.IsAsked(o) },
		records: func(o client.Object) [][]torporv1alpha1.StopRecord {
			return [][]torporv1alpha1.StopRecord{fieldswitch.ReadSwitch(o).Records}
		},
	}
}

func metaOf(name types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
}

// workload returns a built-in kind of Kubernetes.
func workload(of kinds.Kind) kind {
	name := of.GVK().Kind
	k := switchedKind(name, newListOf(of.GVK()), func(t testing.TB, named types.NamespacedName) client.Object {
		t.Helper()
		return testenv.ReadWorkload(t, name, of.Switch().Operations).Build(named)
	})
	k.isScaled = of.Switch().IsScaled
	return k
}

// findWorkload returns the built-in kind with a name.
func findWorkload(name string) kind {
	for _, of := range kinds.ListWorkloads() {
		if of.GVK().Kind == name {
			return workload(of)
		}
	}
	panic("expected a workload, found " + name)
}

func deployments() kind { return findWorkload("Deployment") }

func cronJobs() kind { return findWorkload("CronJob") }

func newListOf(of schema.GroupVersionKind) func() client.ObjectList {
	return func() client.ObjectList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
		return list
	}
}

func fluxKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: kind}
}

// kustomizations returns the kind of Flux with a StopAdapter in the examples.
func kustomizations() kind {
	k := switchedKind("Kustomization", newListOf(fluxKind("Kustomization")), func(_ testing.TB, name types.NamespacedName) client.Object {
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
