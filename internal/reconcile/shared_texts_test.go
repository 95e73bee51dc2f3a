// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestObjectsShareTexts expects two separately decoded objects to share equal strings, without a change to their
// contents.
func TestObjectsShareTexts(t *testing.T) {
	decode := func() *corev1.Pod {
		// As with a decoder, no two objects share a string.
		text := func(s string) string { return strings.Clone(s) }
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{text("app"): text("guid")}, Annotations: map[string]string{text("note"): text("of one object")},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: text("manager"), Operation: metav1.ManagedFieldsOperationType(text("Apply"))}},
		}}
	}
	first, second, want := decode(), decode(), decode()
	ShareTexts(first)
	ShareTexts(second)
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the object has changed (-before +after):\n%s", diff)
	}
	texts := func(pod *corev1.Pod) []string {
		return slices.Concat(slices.Collect(maps.Keys(pod.Labels)), slices.Collect(maps.Values(pod.Labels)), slices.Collect(maps.Keys(pod.Annotations)),
			[]string{pod.ManagedFields[0].Manager, string(pod.ManagedFields[0].Operation)})
	}
	for i, text := range texts(first) {
		if other := texts(second)[i]; unsafe.StringData(text) != unsafe.StringData(other) {
			t.Errorf("%q is kept twice", text)
		}
	}
	none := &corev1.Pod{}
	ShareTexts(none)
	if fmt.Sprint(none) != fmt.Sprint(&corev1.Pod{}) {
		t.Errorf("found %v", none)
	}
}
