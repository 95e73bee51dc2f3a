// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func TestUntil(t *testing.T) {
	for name, row := range map[string]struct {
		annotations map[string]string
		want        string
		readable    bool
	}{
		"nothing is said":     {nil, "", true},
		"a time":              {map[string]string{torporv1alpha1.UntilAnnotation: "2026-11-20T22:00:00Z"}, "2026-11-20T22:00:00Z", true},
		"something else said": {map[string]string{torporv1alpha1.UntilAnnotation: "tomorrow"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := ReadStopUntil(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}})
			found := ""
			if at != nil {
				found = at.UTC().Format("2006-01-02T15:04:05Z07:00")
			}
			if found != row.want || ok != row.readable {
				t.Errorf("expected %q and %t, found %q and %t", row.want, row.readable, found, ok)
			}
		})
	}
}

func TestAnnotatedBy(t *testing.T) {
	entry := func(manager, subresource, annotation string) metav1.ManagedFieldsEntry {
		fields := &metav1.FieldsV1{}
		fields.SetRawString(`{"f:metadata":{"f:annotations":{"f:` + annotation + `":{}}}}`)
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: fields}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "nobody"}, entry("status", "status", "a"), entry("first", "", "ab"), entry("second", "", "a"),
	}}}
	for annotation, want := range map[string]string{"a": "second", "ab": "first", "b": ""} {
		if found := FieldManagerOf(pod, annotation); found != want {
			t.Errorf("%s: expected %q, found %q", annotation, want, found)
		}
	}
}
