// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// AnnotationSwitch holds the names of one switch's annotations. Name stops an object or a part of it. Admission records
// the requester in RequestedBy and RequestVersion. Reason and Until apply to the stop of this switch only.
type AnnotationSwitch struct {
	Name, RequestedBy, RequestVersion, Reason, Until string
}

// UntilAnnotation returns the annotation with the end of the stop: the switch's own annotation if it is set, otherwise
// the annotation for all stops of the object.
func (s AnnotationSwitch) UntilAnnotation(annotations map[string]string) string {
	return ownOrShared(annotations, s.Until, torporv1alpha1.UntilAnnotation)
}

// ReasonAnnotation returns the annotation with the reason for the stop: the switch's own annotation if it is set,
// otherwise the annotation for all stops of the object.
func (s AnnotationSwitch) ReasonAnnotation(annotations map[string]string) string {
	return ownOrShared(annotations, s.Reason, torporv1alpha1.ReasonAnnotation)
}

// Annotations returns the annotation that requests the stop, and the switch's own annotations for its reason, its end
// and the author of the end. They are set and removed together.
func (s AnnotationSwitch) Annotations() []string {
	return []string{s.Name, s.Reason, s.Until, s.Until + torporv1alpha1.NotedSuffix}
}

func ownOrShared(annotations map[string]string, own, shared string) string {
	if annotations[own] != "" {
		return own
	}
	return shared
}

// ReadRequest reads a request from the annotations of an object.
func (s AnnotationSwitch) ReadRequest(obj metav1.Object, isStopped bool) Request {
	annotations := obj.GetAnnotations()
	until := s.UntilAnnotation(annotations)
	asked := Request{
		IsStopped: isStopped, By: annotations[s.RequestedBy], Version: annotations[s.RequestVersion], FieldManager: FieldManagerOf(obj, s.Name),
		Reason: annotations[s.ReasonAnnotation(annotations)], Until: annotations[until], UntilBy: ReadAuthor(annotations, until),
	}
	if written := WriteTimeOf(obj, s.Name); written != nil {
		asked.At = written.Time
	}
	if written := WriteTimeOf(obj, until); written != nil {
		asked.UntilWrittenAt = written.Time
	}
	return asked
}

// FieldManagerOf returns the field manager that set an annotation, as recorded by the API server; empty if it
// was not recorded.
func FieldManagerOf(obj metav1.Object, annotation string) string {
	if e := fieldEntryOf(obj, annotation); e != nil {
		return e.Manager
	}
	return ""
}

// WriteTimeOf returns when the field manager that set an annotation last wrote the object, as recorded by the API
// server; nil if this was not recorded.
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

// LastWriter returns an unknown requester with the name of the field manager that last wrote an object, for use when
// admission has recorded no user.
func LastWriter(obj metav1.Object) string {
	var last *metav1.ManagedFieldsEntry
	fields := obj.GetManagedFields()
	for i := range fields {
		e := &fields[i]
		if e.Subresource == "" && e.Time != nil && (last == nil || last.Time.Before(e.Time)) {
			last = e
		}
	}
	if last == nil {
		return UnknownRequester
	}
	return Request{FieldManager: last.Manager}.requester("")
}
