// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShareTexts interns strings of an object that is about to be cached: labels, field managers, and annotation keys.
// Thousands of objects have the same keys, and about a dozen objects have the GUID of one app.
func ShareTexts(obj metav1.Object) {
	if labels := obj.GetLabels(); labels != nil {
		shared := make(map[string]string, len(labels))
		for name, value := range labels {
			shared[unique.Make(name).Value()] = unique.Make(value).Value()
		}
		obj.SetLabels(shared)
	}
	if annotations := obj.GetAnnotations(); annotations != nil {
		shared := make(map[string]string, len(annotations))
		for name, value := range annotations {
			shared[unique.Make(name).Value()] = value
		}
		obj.SetAnnotations(shared)
	}
	entries := obj.GetManagedFields()
	for i := range entries {
		e := &entries[i]
		e.Manager, e.APIVersion, e.FieldsType = unique.Make(e.Manager).Value(), unique.Make(e.APIVersion).Value(), unique.Make(e.FieldsType).Value()
		e.Operation, e.Subresource = unique.Make(e.Operation).Value(), unique.Make(e.Subresource).Value()
	}
}
