// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// FuzzDecideForgedAnnotations decides about a Deployment whose annotations a user has written. Only spec, labels and
// annotations may change, and the spec must not change after the second pass.
func FuzzDecideForgedAnnotations(f *testing.F) {
	for _, restore := range []string{
		`[{"path":"/spec/replicas","before":3,"after":0}]`, `[{"path":"/metadata/finalizers","before":["x"]}]`, `[{"path":"/status","before":{}}]`,
		`[{"path":"/metadata/labels","after":{},"made":true}]`, `[{"path":"/metadata/annotations","before":{}}]`, `[{"path":"/spec","before":1}]`, `[null]`, `{`,
		`[{"path":"/spec/template/spec/containers/0","before":{}}]`, `[{"path":"/metadata/labels/a","before":"b","after":"c"}]`, `[{"path":"spec"}]`,
	} {
		f.Add(restore, `[{"since":"2026-01-01T00:00:00Z","by":"x","requested":true}]`, "true", "8h", "2026-01-01T00:00:00Z x")
	}
	f.Fuzz(func(t *testing.T, restore, stops, stopped, until, resumed string) {
		before := map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replicas": int64(0)}, "status": map[string]any{"replicas": int64(1)},
			"metadata": map[string]any{"name": "web", "namespace": "team", "uid": "u", "labels": map[string]any{"a": "c"}, "finalizers": []any{"keep"}},
		}
		object := &unstructured.Unstructured{Object: before}
		object.SetAnnotations(map[string]string{
			torporv1alpha1.RestoreAnnotation: restore, torporv1alpha1.StopsAnnotation: stops, torporv1alpha1.StoppedAnnotation: stopped,
			torporv1alpha1.UntilAnnotation: until, torporv1alpha1.ResumedAnnotation: resumed,
		})
		o := ObservedSwitch{
			Now: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Object: object,
			Operations: []torporv1alpha1.StopOperation{{Op: torporv1alpha1.ReplaceOperation, Path: "/spec/replicas", Value: &torporv1alpha1.JSONValue{Raw: []byte("0")}}},
		}
		next := Decide(o).Next
		if changed := outsideOfSwitch(next); !reflect.DeepEqual(changed, outsideOfSwitch(object)) {
			t.Fatalf("expected only spec, labels and annotations to change, found %v", changed)
		}
		o.Object = next
		third := Decide(o).Next
		o.Object = third
		if fourth := Decide(o).Next; !reflect.DeepEqual(third.Object["spec"], fourth.Object["spec"]) {
			t.Errorf("expected two passes to come to rest, found %v and %v", third.Object["spec"], fourth.Object["spec"])
		}
	})
}

// outsideOfSwitch returns everything that no stop may change.
func outsideOfSwitch(u *unstructured.Unstructured) map[string]any {
	rest := maps.Clone(u.DeepCopy().Object)
	delete(rest, "spec")
	if metadata, isMap := rest[metadataField].(map[string]any); isMap {
		delete(metadata, "labels")
		delete(metadata, "annotations")
	}
	return rest
}

// FuzzEvaluateExpression compiles and evaluates expressions of a StopAdapter, whose cost is limited.
func FuzzEvaluateExpression(f *testing.F) {
	for _, text := range []string{
		"object.status.ready == true", "has(object.status.conditions) && object.status.conditions.exists(c, c.type == 'a')",
		"[1,2,3].all(a, [1,2,3].all(b, [1,2,3].all(c, true)))", "'a'.matches('(a*)*b')", "object", "1",
	} {
		f.Add(text)
	}
	object := map[string]any{"status": map[string]any{"ready": true, "conditions": []any{map[string]any{"type": "a"}}}}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1024 { // The schema rejects longer expressions.
			return
		}
		e, err := CompileExpression(text)
		if err != nil {
			return
		}
		begin := time.Now()
		_, _ = e.EvaluateOn(object)
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%q: expected a bounded evaluation, found %s", text, took)
		}
	})
}
