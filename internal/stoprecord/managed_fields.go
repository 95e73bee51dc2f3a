// SPDX-License-Identifier: Apache-2.0

package stoprecord

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// AnnotationSwitch is an annotation that stops something, those by which admission notes who set it, and those that say why and until when
// of this stop alone.
type AnnotationSwitch struct {
	Name, RequestedBy, RequestVersion, Reason, Until string
}

// UntilAnnotation is which annotation says when the stop ends: its own if it has one, else the one of all stops of the object.
func (s AnnotationSwitch) UntilAnnotation(annotations map[string]string) string {
	return ownOrShared(annotations, s.Until, torporv1alpha1.UntilAnnotation)
}

// ReasonAnnotation is which annotation says why it is stopped: its own if it has one, else the one of all stops of the object.
func (s AnnotationSwitch) ReasonAnnotation(annotations map[string]string) string {
	return ownOrShared(annotations, s.Reason, torporv1alpha1.ReasonAnnotation)
}

// Annotations are those that stop something and say more about that stop alone: they come and go together.
func (s AnnotationSwitch) Annotations() []string {
	return []string{s.Name, s.Reason, s.Until, s.Until + torporv1alpha1.NotedSuffix}
}

func ownOrShared(annotations map[string]string, own, shared string) string {
	if annotations[own] != "" {
		return own
	}
	return shared
}

// ReadRequest reads what an object asks for by an annotation.
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
