// SPDX-License-Identifier: Apache-2.0

package foreignswitch

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// TestAnObjectWithoutAStatusIsAsked has what its own controller has not seen yet, or, like Flux, does not look at while it is stopped.
func TestAnObjectWithoutAStatusIsAsked(t *testing.T) {
	files, err := filepath.Glob("../../examples/stopadapters/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("expected examples of StopAdapters, found %d and the error %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			a := &torporv1alpha1.StopAdapter{}
			if err := yaml.NewYAMLOrJSONDecoder(file, 4096).Decode(a); err != nil {
				t.Fatal(err)
			}
			kind, err := NewKind(a)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			rest := kind.Switch.ReadRest(u)
			if rest.Message != "" || rest.IsReady || !rest.IsStoppable || len(u.Object) != 1 {
				t.Errorf("expected an answer, that it is not awake, and an object as it was, found %+v and %v", rest, u.Object)
			}
		})
	}
}
