// SPDX-License-Identifier: Apache-2.0

// Package statusannotation keeps parts of a status in annotations, which no schema drops. A CustomResourceDefinition
// of another project for the same kind drops the status fields that it does not list.
package statusannotation

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// MaxSize is the maximum size of one annotation, in bytes. The API server allows 256 KiB for all annotations of an object.
const MaxSize = 160 << 10

// KeyOf returns the key of a controller's annotation. Each controller has its own annotation, so that controllers do
// not overwrite each other's fields.
func KeyOf(controller string) string { return torporv1alpha1.StatusAnnotationPrefix + controller }

// IsIn reports whether an object has an annotation with fields of its status.
func IsIn(obj metav1.Object) bool {
	for key := range obj.GetAnnotations() {
		if strings.HasPrefix(key, torporv1alpha1.StatusAnnotationPrefix) {
			return true
		}
	}
	return false
}

// RestoreStatus copies the fields that the status lacks from the annotations into the status. It never changes a field
// that the status has. Annotations that cannot be read, and those with the excepted keys, are ignored.
func RestoreStatus(obj metav1.Object, except ...string) {
	for key, text := range obj.GetAnnotations() {
		if !strings.HasPrefix(key, torporv1alpha1.StatusAnnotationPrefix) || len(text) > MaxSize || slices.Contains(except, key) {
			continue
		}
		var remembered map[string]any
		status, err := FieldsOf(obj)
		if err != nil || json.Unmarshal([]byte(text), &remembered) != nil {
			continue
		}
		missing := selectMissing(status, remembered)
		if len(missing) == 0 {
			continue
		}
		// Neither error needs handling: missing was decoded from JSON and can be encoded again, and Unmarshal skips
		// values that do not match the type of their field.
		data, _ := json.Marshal(map[string]any{"status": missing})
		_ = json.Unmarshal(data, obj)
	}
}

// FieldsOf returns the status of an object in its JSON form. For an object with a Go type, it encodes only the status;
// the rest of the object is several times as large.
func FieldsOf(obj metav1.Object) (map[string]any, error) {
	part, isTyped := statusOf(obj)
	if !isTyped {
		part = obj
	}
	data, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode the status: %w", err)
	}
	if !isTyped {
		fields, _ = fields["status"].(map[string]any)
	}
	return fields, nil
}

// HasSameStatus reports whether two objects of one type are known to have the same status, without encoding
// them.
func HasSameStatus(a, b metav1.Object) bool {
	one, isTyped := statusOf(a)
	other, _ := statusOf(b)
	return isTyped && reflect.DeepEqual(one, other)
}

// statusOf returns a pointer to the field Status. The second result is false for types without this field, such as
// unstructured objects.
func statusOf(obj metav1.Object) (any, bool) {
	value := reflect.Indirect(reflect.ValueOf(obj))
	if value.Kind() != reflect.Struct {
		return nil, false
	}
	field := value.FieldByName("Status")
	if !field.IsValid() {
		return nil, false
	}
	return field.Addr().Interface(), true
}

// selectMissing returns the remembered fields that the status lacks.
func selectMissing(status, remembered map[string]any) map[string]any {
	missing := maps.Clone(remembered)
	for name, value := range remembered {
		nested, isMap := value.(map[string]any)
		stored, isStored := status[name].(map[string]any)
		switch {
		case status[name] == nil:
		case isMap && isStored:
			if missing[name] = selectMissing(stored, nested); len(selectMissing(stored, nested)) == 0 {
				delete(missing, name)
			}
		default:
			delete(missing, name)
		}
	}
	return missing
}
