// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

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
		if found := stoprecord.FieldManagerOf(pod, annotation); found != want {
			t.Errorf("%s: expected %q, found %q", annotation, want, found)
		}
	}
}
