// SPDX-License-Identifier: Apache-2.0

package stoprecord

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// AnnotationSwitch is an annotation that stops something, and those by which admission notes who set it.
type AnnotationSwitch struct {
	Name, RequestedBy, RequestVersion string
}

// ReadRequest reads what an object asks for by an annotation.
func (s AnnotationSwitch) ReadRequest(obj metav1.Object, isStopped bool) Request {
	annotations := obj.GetAnnotations()
	asked := Request{
		IsStopped: isStopped, By: annotations[s.RequestedBy], Version: annotations[s.RequestVersion], FieldManager: FieldManagerOf(obj, s.Name),
		Reason: annotations[torporv1alpha1.ReasonAnnotation], Until: annotations[torporv1alpha1.UntilAnnotation],
	}
	if written := WriteTimeOf(obj, s.Name); written != nil {
		asked.At = written.Time
	}
	if written := WriteTimeOf(obj, torporv1alpha1.UntilAnnotation); written != nil {
		asked.UntilWrittenAt = written.Time
	}
	return asked
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
