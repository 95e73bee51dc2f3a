// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestEveryKindHasAnExampleThatApplies keeps examples/ true: a real API server takes each manifest without a warning.
func TestEveryKindHasAnExampleThatApplies(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := env.Client.List(t.Context(), &crds); err != nil {
		t.Fatal(err)
	}
	withoutExample := map[string]bool{}
	for i := range crds.Items {
		withoutExample[crds.Items[i].Spec.Names.Kind] = true
	}
	manifests, err := filepath.Glob(filepath.Join("..", "..", "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests {
		data, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		example := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &example.Object); err != nil {
			t.Fatalf("%s: expected one object as YAML, found %v", manifest, err)
		}
		example.SetNamespace("default")
		delete(withoutExample, example.GetKind())
		err = env.Client.Create(t.Context(), example, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
		if err != nil {
			t.Errorf("%s: expected the API server to take it, found %v", manifest, err)
		}
	}
	for kind := range withoutExample {
		t.Errorf("expected an example of the kind %s in examples/, found none", kind)
	}
}
