// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func operation(op torporv1alpha1.StopOperationType, path, value string) torporv1alpha1.StopOperation {
	o := torporv1alpha1.StopOperation{Op: op, Path: path}
	if value != "" {
		o.Value = &torporv1alpha1.JSONValue{Raw: []byte(value)}
	}
	return o
}

func parseObject(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestFieldsAreSetAndBroughtBack applies each operation to an object that has the path of the field completely, partly
// or not at all.
func TestFieldsAreSetAndBroughtBack(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		object, want string
		operations   []torporv1alpha1.StopOperation
	}{
		"number: set and restored":            {"{spec: {replicas: 3}}", "{spec: {replicas: 0}}", []torporv1alpha1.StopOperation{operation("replace", "/spec/replicas", "0")}},
		"flag that exists: set and restored":  {"{spec: {suspend: false}}", "{spec: {suspend: true}}", []torporv1alpha1.StopOperation{operation("add", "/spec/suspend", "true")}},
		"absent flag: set and restored":       {"{spec: {}}", "{spec: {suspend: true}}", []torporv1alpha1.StopOperation{operation("add", "/spec/suspend", "true")}},
		"flag that is null: set and restored": {"{spec: {suspend: null}}", "{spec: {suspend: true}}", []torporv1alpha1.StopOperation{operation("add", "/spec/suspend", "true")}},
		"missing maps on the path: created and removed again": {
			"{spec: {}}", "{spec: {a: {b: {c: [1]}}}}", []torporv1alpha1.StopOperation{operation("add", "/spec/a/b/c", "[1]")},
		},
		"annotation with a slash, on an object without annotations: set and restored": {
			"{metadata: {name: x}}", `{metadata: {name: x, annotations: {cnpg.io/hibernation: "on"}}}`,
			[]torporv1alpha1.StopOperation{operation("add", "/metadata/annotations/cnpg.io~1hibernation", `"on"`)},
		},
		"map that the stop removes: restored by the start": {
			"{spec: {syncPolicy: {automated: {prune: true, selfHeal: true}, retry: {limit: 5}}}}", "{spec: {syncPolicy: {retry: {limit: 5}}}}",
			[]torporv1alpha1.StopOperation{operation("remove", "/spec/syncPolicy/automated", "")},
		},
		"a stop that removes an absent map changes nothing": {"{spec: {}}", "{spec: {}}", []torporv1alpha1.StopOperation{operation("remove", "/spec/syncPolicy/automated", "")}},
		"several fields: set and restored": {
			`{metadata: {annotations: {a: "1"}}, spec: {paused: false}}`, `{metadata: {annotations: {a: "2", b: "3"}}, spec: {paused: true}}`,
			[]torporv1alpha1.StopOperation{operation("add", "/spec/paused", "true"), operation("add", "/metadata/annotations/a", `"2"`), operation("add", "/metadata/annotations/b", `"3"`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := parseObject(t, row.object)
			saved, err := applyOperations(object, row.operations)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(normalize(parseObject(t, row.want)), normalize(object)); diff != "" {
				t.Errorf("stopped (-want +found):\n%s", diff)
			}
			if !IsSet(object, row.operations[len(row.operations)-1:]) {
				t.Error("expected the switch to be seen as set")
			}
			if kept := restoreFields(object, saved); len(kept) > 0 {
				t.Errorf("expected everything to come back, found that %v stayed", kept)
			}
			if diff := cmp.Diff(normalize(parseObject(t, row.object)), normalize(object)); diff != "" {
				t.Errorf("restored (-want +found):\n%s", diff)
			}
		})
	}
}

func TestEffectsOfAStopAndAStart(t *testing.T) {
	t.Parallel()
	object := parseObject(t, "{spec: {count: 3, cron: daily, hold: true}}")
	operations := []torporv1alpha1.StopOperation{
		operation("replace", "/spec/count", "0"), operation("add", "/spec/suspend", "true"), operation("add", "/spec/hold", "true"),
		operation("remove", "/spec/cron", ""), operation("remove", "/spec/gone", ""),
	}
	stop, err := DescribeStop(object, operations)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := applyOperations(object, operations)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ found, want []string }{
		"stop": {stop, []string{
			"/spec/count is set to 0, and back to 3 at the start",
			"/spec/suspend is set to true, and is removed at the start",
			"/spec/hold is already true, and a start does not change it",
			`/spec/cron is removed, and is set to "daily" again at the start`,
			"/spec/gone is already absent, and a start does not change it",
		}},
		"start": {SwitchState{Saved: saved}.DescribeStart(), []string{
			"/spec/count is set to 3 again, unless it has changed since the stop",
			"/spec/suspend is removed, unless it has changed since the stop",
			"/spec/hold is set to true again, unless it has changed since the stop",
			`/spec/cron is set to "daily" again, unless it has changed since the stop`,
			"/spec/gone is removed, unless it has changed since the stop",
		}},
	} {
		if diff := cmp.Diff(row.want, row.found); diff != "" {
			t.Errorf("%s (-want +found):\n%s", name, diff)
		}
	}
}

// TestStartKeepsChangesOfOtherWriters has another writer change one of two fields, and add an entry to a map that
// the stop created.
func TestStartKeepsChangesOfOtherWriters(t *testing.T) {
	t.Parallel()
	object := parseObject(t, "{spec: {count: 1}}")
	saved, err := applyOperations(object, []torporv1alpha1.StopOperation{operation("add", "/spec/count", "0"), operation("add", "/spec/a/b", "true")})
	if err != nil {
		t.Fatal(err)
	}
	spec := object["spec"].(map[string]any)
	spec["count"], spec["a"].(map[string]any)["theirs"] = 7, true
	if kept := restoreFields(object, saved); strings.Join(kept, " ") != "/spec/count" {
		t.Errorf("expected the number to stay, found %v", kept)
	}
	if diff := cmp.Diff(normalize(parseObject(t, "{spec: {count: 7, a: {theirs: true}}}")), normalize(object)); diff != "" {
		t.Errorf("(-want +found):\n%s", diff)
	}
}

// TestInvalidStopsAreRefused expects invalid stops to be refused before anything is changed.
func TestInvalidStopsAreRefused(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		object, want string
		operation    torporv1alpha1.StopOperation
	}{
		"path through a number: refused":                      {"{spec: {a: 1}}", "expected a map at /spec/a", operation("add", "/spec/a/b", "true")},
		"replace of a field whose parent is missing: refused": {"{spec: {}}", "expected a map at /spec/a", operation("replace", "/spec/a/b", "true")},
		"add operation without a value: refused":              {"{spec: {}}", "expected a value for /spec/a", operation("add", "/spec/a", "")},
		"current value that is too large to save: refused":    {"{spec: {a: " + strings.Repeat("x", maxRestore) + "}}", "expected at most 16384 bytes", operation("add", "/spec/a", "true")},
		"two operations on the same field: refused":           {"{spec: {}}", "expected each field once, found /spec/a twice", operation("twice", "/spec/a", "true")},
		"path through more than 50 missing maps: refused":     {"{spec: {}}", "expected at most 50 fields", operation("add", "/spec"+strings.Repeat("/a", 60), "true")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operations := []torporv1alpha1.StopOperation{row.operation}
			if row.operation.Op == "twice" {
				operations = []torporv1alpha1.StopOperation{operation("add", "/spec/a", "1"), operation("add", "/spec/a", "2")}
			}
			if _, err := applyOperations(parseObject(t, row.object), operations); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected %q, found %v", row.want, err)
			}
		})
	}
}

// TestOperationsChangeSpecFieldsOrSingleStrings has paths in annotations and labels that are too deep, and values
// that are not strings. After one such value, none of an object's annotations could be read, and Torpor's
// annotations would replace all of them.
func TestOperationsChangeSpecFieldsOrSingleStrings(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		want      string
		operation torporv1alpha1.StopOperation
	}{
		"operation on a field of the spec: accepted":             {"", operation("replace", "/spec/a/b", "true")},
		"operation on an annotation: accepted":                   {"", operation("add", "/metadata/annotations/cnpg.io~1hibernation", `"on"`)},
		"operation that removes a label: accepted":               {"", operation("remove", "/metadata/labels/a", "")},
		"slash in an annotation that is not written ~1: refused": {"write a slash in a name as ~1", operation("add", "/metadata/annotations/cnpg.io/hibernation", `"on"`)},
		"operation on all annotations: refused":                  {"write a slash in a name as ~1", operation("remove", "/metadata/annotations", "")},
		"boolean value for an annotation: refused":               {"expected a string for /metadata/annotations/a, found true; put the value in quotes", operation("add", "/metadata/annotations/a", "true")},
		"null value for a label: refused":                        {"expected a string for /metadata/labels/a, found null", operation("add", "/metadata/labels/a", "null")},
		"operation on another field of the metadata: refused":    {"expected a field below /spec", operation("add", "/metadata/finalizers", `["a"]`)},
		"operation on the status: refused":                       {"expected a field below /spec", operation("add", "/status/phase", `"Off"`)},
		"operation without a value: refused":                     {"[0]: expected a value for /spec/a, found none", operation("add", "/spec/a", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ValidateOperations([]torporv1alpha1.StopOperation{row.operation})
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected %q, found %v", row.want, err)
			}
		})
	}
}

// TestForgedSavedFieldsAreNotRestored has a user forge the annotation with the saved fields. Another namespace would
// cause a write to another object, and annotations that are not strings would be unreadable.
func TestForgedSavedFieldsAreNotRestored(t *testing.T) {
	t.Parallel()
	for name, saved := range map[string]string{
		"forged namespace: refused":                       `[{"path":"/metadata/namespace","before":"kube-system","after":"shops"}]`,
		"forged annotation that is not a string: refused": `[{"path":"/metadata/annotations/b","before":5,"after":"x"}]`,
		"forged map of all annotations: refused":          `[{"path":"/metadata/annotations","before":{"b":5},"after":{},"made":true}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			w.object.SetNamespace("shops")
			w.annotate("a", "kept")
			w.annotate("b", "x")
			w.annotate(torporv1alpha1.RestoreAnnotation, saved)
			w.settle()
			if w.object.GetNamespace() != "shops" || w.object.GetAnnotations()["a"] != "kept" || ReadSwitch(w.object).Refused == "" {
				t.Errorf("expected the object as it was, and a refusal, found %v", w.object.Object)
			}
		})
	}
}
