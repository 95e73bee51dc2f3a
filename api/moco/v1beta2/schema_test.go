// SPDX-License-Identifier: Apache-2.0

package v1beta2_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestTheSchema asks a real API server; its subtests share one, which takes seconds to start.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	known := runtime.NewScheme()
	if err := mocov1beta2.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	typed, err := client.New(hub.Config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	s := &schemaServer{Environment: hub, typed: typed}
	t.Run("upstream's examples apply and lose nothing", s.testExamples)
	t.Run("defaults", s.testDefaults)
	t.Run("what is refused at creation", s.testRefusedAtCreation)
	t.Run("what is refused of a BackupPolicy", s.testRefusedPolicies)
	t.Run("what is refused later", s.testRefusedLater)
	t.Run("columns", s.testColumns)
	t.Run("the status loses nothing", s.testStatus)
}

// schemaServer is an API server that serves the kinds.
type schemaServer struct {
	*testenv.Environment
	typed client.Client
}

func (s *schemaServer) testExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("expected manifests in testdata, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			namespace := s.CreateNamespace(t)
			for _, written := range readManifests(t, file) {
				written.SetNamespace(namespace)
				applied := client.ApplyConfigurationFromUnstructured(written.DeepCopy())
				strict := client.WithFieldValidation(s.Client, metav1.FieldValidationStrict)
				if err := strict.Apply(t.Context(), applied, client.FieldOwner("somebody")); err != nil {
					t.Fatalf("apply %s: %v", written.GetKind(), err)
				}
				if written.GroupVersionKind().Group == mocov1beta2.GroupVersion().Group {
					s.expectNothingLost(t, written)
				}
			}
		})
	}
}

// expectNothingLost reads an object by its Go type and compares what that writes with what was written first.
func (s *schemaServer) expectNothingLost(t *testing.T, written *unstructured.Unstructured) {
	t.Helper()
	known, err := s.typed.Scheme().New(written.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	read, ok := known.(client.Object)
	if !ok {
		t.Fatalf("expected an object, found %T", known)
	}
	if err := s.typed.Get(t.Context(), client.ObjectKeyFromObject(written), read); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(read)
	if err != nil {
		t.Fatal(err)
	}
	again := map[string]any{}
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normalizeJSON(t, written.Object["spec"]), commonFields(normalizeJSON(t, written.Object["spec"]), again["spec"])); diff != "" {
		t.Errorf("%s (-written +read):\n%s", written.GetKind(), diff)
	}
	if cluster, ok := read.(*mocov1beta2.MySQLCluster); ok {
		pod, _, _ := unstructured.NestedMap(written.Object, "spec", "podTemplate", "spec")
		if diff := cmp.Diff(normalizeJSON(t, pod), normalizeJSON(t, cluster.Spec.PodTemplate.Spec)); diff != "" {
			t.Errorf("the Pod's spec (-written +read):\n%s", diff)
		}
	}
}

// commonFields is what of got is in want too, so that defaults do not count.
func commonFields(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			return got
		}
		kept := map[string]any{}
		for key, value := range want {
			if found, ok := fields[key]; ok {
				kept[key] = commonFields(value, found)
			}
		}
		return kept
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return got
		}
		kept := make([]any, len(items))
		for i := range items {
			kept[i] = commonFields(want[i], items[i])
		}
		return kept
	default:
		return got
	}
}

// normalizeJSON brings a value into the types that decoded JSON has.
func normalizeJSON(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func readManifests(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for in := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)); ; {
		u := &unstructured.Unstructured{}
		switch err := in.Decode(u); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		default:
			all = append(all, u)
		}
	}
}

func (s *schemaServer) testDefaults(t *testing.T) {
	for name, row := range map[string]struct {
		object *unstructured.Unstructured
		path   []string
		want   map[string]any
	}{
		"a cluster gets defaults": {minimalCluster(), []string{"spec"}, map[string]any{
			"replicas": int64(1), "maxDelaySeconds": int64(60), "maxDelaySecondsForPodDeletion": int64(0), "startupWaitSeconds": int64(3600),
			"initializeTimezoneData": false,
		}},
		"a policy gets defaults":       {minimalPolicy(), []string{"spec"}, map[string]any{"concurrencyPolicy": "Allow"}},
		"a policy's Job gets defaults": {minimalPolicy(), []string{"spec", "jobConfig"}, map[string]any{"threads": int64(4), "cpu": int64(4), "memory": "4Gi"}},
		"a bucket gets defaults": {
			testenv.WithField(minimalPolicy(), map[string]any{"bucketName": "b"}, "spec", "jobConfig", "bucketConfig"),
			[]string{"spec", "jobConfig", "bucketConfig"},
			map[string]any{"backendType": "s3"},
		},
		"a Job that restores gets defaults": {
			testenv.WithField(minimalCluster(), minimalRestore(), "spec", "restore"),
			[]string{"spec", "restore", "jobConfig"},
			map[string]any{"threads": int64(4), "cpu": int64(4), "memory": "4Gi"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before, _, _ := unstructured.NestedMap(row.object.Object, row.path...)
			if err := s.Client.Create(t.Context(), row.object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			after, _, _ := unstructured.NestedMap(row.object.Object, row.path...)
			added := map[string]any{}
			for key, value := range after {
				if _, ok := before[key]; !ok {
					added[key] = value
				}
			}
			if diff := cmp.Diff(row.want, added); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
		})
	}
}

// minimalCluster is the smallest cluster that is accepted.
func minimalCluster() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mocov1beta2.GroupVersion().String(), "kind": mocov1beta2.MySQLClusterKind().Kind,
		"metadata": map[string]any{"name": "test", "namespace": "default"},
		"spec": map[string]any{
			"podTemplate":          map[string]any{"spec": map[string]any{"containers": []any{container("mysqld")}}},
			"volumeClaimTemplates": []any{claim("mysql-data", "1Gi")},
		},
	}}
}

func minimalPolicy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": mocov1beta2.GroupVersion().String(), "kind": mocov1beta2.BackupPolicyKind().Kind,
		"metadata": map[string]any{"name": "daily", "namespace": "default"},
		"spec":     map[string]any{"schedule": "@daily", "jobConfig": map[string]any{"env": []any{map[string]any{"name": "A", "value": "1"}}}},
	}}
}

func minimalRestore() map[string]any {
	return map[string]any{
		"sourceName": "other", "sourceNamespace": "elsewhere", "restorePoint": "2026-11-20T12:00:00Z",
		"jobConfig": map[string]any{"env": []any{map[string]any{"name": "A", "value": "1"}}},
	}
}

func container(name string, ports ...any) map[string]any {
	c := map[string]any{"name": name, "image": "example.com/mysql:8"}
	if len(ports) > 0 {
		c["ports"] = ports
	}
	return c
}

func claim(name, size string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}},
	}
}
