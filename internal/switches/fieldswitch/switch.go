// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

const (
	// maxAnnotation limits the size of an annotation that is read. A record that would be larger is written with
	// fewer stops.
	maxAnnotation = 32 << 10
	// stoppedValue is the only value of torpor.dev/stopped that stops an object.
	stoppedValue = "true"
	// startedValue is the value after a start. The annotation is not removed, because a Deployment's annotations are
	// copied to its ReplicaSets and never removed there, so that kubectl rollout undo would restore an old stop.
	startedValue = "false"
)

// SwitchState is the content of Torpor's annotations of an object.
type SwitchState struct {
	// Records are the stops that torpor.dev/stopped requested.
	Records stoprecord.Records
	// Scheduled are the stops of Slumbers, by name.
	Scheduled []torporv1alpha1.ScheduledStop
	// Saved holds the fields that a stop has set; nil while Torpor does not keep the object stopped.
	Saved []SavedField
	// ResumedAt is when Torpor last observed that another writer had changed these fields, and ResumedBy is that
	// writer; zero and empty if there was none.
	ResumedAt time.Time
	ResumedBy string
	// Refused is the reason why the object is not stopped.
	Refused string
	// Unreadable is the name of an annotation whose content was not written by Torpor. It is empty if no annotation
	// is unreadable.
	Unreadable string
}

// AnnotationSwitch returns the annotations with which users stop an object.
func AnnotationSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        torporv1alpha1.StoppedAnnotation,
		RequestedBy: torporv1alpha1.RequestedByAnnotation, RequestVersion: torporv1alpha1.RequestVersionAnnotation,
		Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation,
	}
}

// HasSwitch reports whether an object has an annotation of Torpor; other objects need no decision.
func HasSwitch(obj metav1.Object) bool {
	group := torporv1alpha1.GroupVersion().Group
	for name := range obj.GetAnnotations() {
		if domain, _, _ := strings.Cut(name, "/"); domain == group || strings.HasSuffix(domain, "."+group) {
			return true
		}
	}
	return false
}

// IsAsked reports whether the annotation torpor.dev/stopped requests a stop.
func IsAsked(obj metav1.Object) bool {
	return obj.GetAnnotations()[torporv1alpha1.StoppedAnnotation] == stoppedValue
}

// AskForStop requests a stop of an object, and removes the reason and the end of an earlier stop.
func AskForStop(obj metav1.Object) { ask(obj, stoppedValue) }

// AskForStart withdraws a requested stop, with its reason and its end.
func AskForStart(obj metav1.Object) {
	if obj.GetAnnotations()[torporv1alpha1.StoppedAnnotation] != "" {
		ask(obj, startedValue)
	}
}

func ask(obj metav1.Object, value string) {
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[torporv1alpha1.StoppedAnnotation] = value
	delete(annotations, torporv1alpha1.ReasonAnnotation)
	delete(annotations, torporv1alpha1.UntilAnnotation)
	obj.SetAnnotations(annotations)
}

// ReadSwitch reads the annotations. Records that cannot be read count as absent. A torpor.dev/restore that cannot be
// read is reported in Unreadable, because then no field can be restored.
func ReadSwitch(obj metav1.Object) SwitchState {
	annotations := obj.GetAnnotations()
	s := SwitchState{Refused: annotations[torporv1alpha1.StopRefusedAnnotation], Scheduled: stoprecord.ReadScheduled(annotations)}
	_ = parse(annotations[torporv1alpha1.StopsAnnotation], &s.Records)
	if text := annotations[torporv1alpha1.RestoreAnnotation]; text != "" {
		err := parse(text, &s.Saved)
		isForeign := slices.ContainsFunc(s.Saved, func(one SavedField) bool { return !mayRestore(one) })
		if err != nil || isForeign || len(s.Saved) == 0 || len(s.Saved) > maxOperations {
			s.Saved, s.Unreadable = nil, torporv1alpha1.RestoreAnnotation
		}
	}
	at, by, _ := strings.Cut(annotations[torporv1alpha1.ResumedAnnotation], " ")
	if resumed, err := time.Parse(time.RFC3339, at); err == nil {
		s.ResumedAt, s.ResumedBy = resumed, by
	}
	return s
}

func parse(text string, into any) error {
	if len(text) > maxAnnotation {
		return fmt.Errorf("expected at most %d bytes, found %d", maxAnnotation, len(text))
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("decode an annotation: %w", err)
	}
	return nil
}

// FindScheduled returns the Slumber's stop that is in effect, or nil if none exists. A stop that began before the
// last resume of the object is not in effect.
func (s SwitchState) FindScheduled(annotations map[string]string, now time.Time) *torporv1alpha1.ScheduledStop {
	return stoprecord.FindHolding(s.ListStopsSinceResume(), annotations, now)
}

// ListStopsSinceResume returns the stops of Slumbers that began after the last resume of the object.
func (s SwitchState) ListStopsSinceResume() []torporv1alpha1.ScheduledStop {
	return slices.DeleteFunc(slices.Clone(s.Scheduled), func(stop torporv1alpha1.ScheduledStop) bool {
		return len(stop.Stops) == 0 || !stop.Stops[0].Since.After(s.ResumedAt) && !s.ResumedAt.IsZero()
	})
}

// IsKept reports whether Torpor keeps an object stopped, and every field still has the value that the stop set.
func (s SwitchState) IsKept(obj *unstructured.Unstructured) bool {
	return len(s.Saved) > 0 && holdsAll(obj.Object, s.Saved)
}

// IsRestoreDue reports whether an object is kept stopped although no stop is requested any more.
func IsRestoreDue(obj metav1.Object, now time.Time) bool {
	is := ReadSwitch(obj)
	if len(is.Saved) == 0 || is.FindScheduled(obj.GetAnnotations(), now) != nil {
		return false
	}
	return !stoprecord.NextRecords(is.Records, AnnotationSwitch().ReadRequest(obj, IsAsked(obj)), now).Holds()
}

// IsStoppedWithoutSlumbers reports whether an object is stopped regardless of Slumbers: a user requests it, or its
// own switch was set before.
func (s SwitchState) IsStoppedWithoutSlumbers(obj *unstructured.Unstructured, operations []torporv1alpha1.StopOperation, now time.Time) bool {
	switch {
	case IsAsked(obj) && !s.Records.HasReachedEnd(now):
		return true
	case len(s.Saved) == 0:
		return IsSet(obj.Object, operations)
	default:
		return !slices.ContainsFunc(s.Saved, func(one SavedField) bool { return string(one.Before) != string(one.After) })
	}
}

// LastResume returns the time of the last resume, and its requester.
func (s SwitchState) LastResume() (at metav1.Time, by string) {
	at, by = metav1.NewTime(s.ResumedAt), s.ResumedBy
	if len(s.Records) > 0 {
		last := s.Records[0]
		if last.EndedAt != nil && !last.Requested && last.StartedBy != torporv1alpha1.UntilAnnotation && last.EndedAt.After(at.Time) {
			at, by = *last.EndedAt, last.StartedBy
		}
	}
	return at, by
}
