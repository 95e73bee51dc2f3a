// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ReadStopUntil is when the stops of an object end by themselves, nil if they do not; and whether that could be read.
func ReadStopUntil(obj metav1.Object) (*metav1.Time, bool) {
	text, asked := obj.GetAnnotations()[torporv1alpha1.UntilAnnotation]
	if !asked {
		return nil, true
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, false
	}
	return new(metav1.NewTime(at)), true
}

// FieldManagerOf is the field manager that set an annotation, as the API server noted it; empty if it did not.
func FieldManagerOf(obj metav1.Object, annotation string) string {
	if e := fieldEntryOf(obj, annotation); e != nil {
		return e.Manager
	}
	return ""
}

// WriteTimeOf is when the field manager of an annotation wrote last, as the API server noted it; nil if it did not.
func WriteTimeOf(obj metav1.Object, annotation string) *metav1.Time {
	if e := fieldEntryOf(obj, annotation); e != nil {
		return e.Time
	}
	return nil
}

func fieldEntryOf(obj metav1.Object, annotation string) *metav1.ManagedFieldsEntry {
	fields := obj.GetManagedFields()
	i := slices.IndexFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "" && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:`+annotation+`"`)
	})
	if i < 0 {
		return nil
	}
	return &fields[i]
}
