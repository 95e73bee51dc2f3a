// SPDX-License-Identifier: Apache-2.0

package stopadapter

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
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

const (
	// maxAnnotation is how large an annotation may be that is read. A record that would be larger has fewer stops.
	maxAnnotation = 32 << 10
	// maxSlumbers is how many Slumbers' stops are read.
	maxSlumbers = 20
	// stoppedValue is the only value that stops something.
	stoppedValue = "true"
	// startedValue is that of what was started. The annotation stays, because a Deployment's are copied to its ReplicaSets and never taken away there:
	// kubectl rollout undo would bring back an old stop.
	startedValue = "false"
)

// SwitchState is what the annotations of an object say.
type SwitchState struct {
	// Records are the stops that torpor.dev/stopped asked for.
	Records stoprecord.Records
	// Scheduled are those of Slumbers, by name.
	Scheduled []torporv1alpha1.ScheduledStop
	// Saved is what a stop has changed; nil while the object is not kept stopped.
	Saved []SavedField
	// ResumedAt is when somebody changed that, and ResumedBy who; zero and empty if nobody has.
	ResumedAt time.Time
	ResumedBy string
	// Refused is why the object is not stopped.
	Refused string
	// Unreadable says which annotation is not what Torpor wrote; empty if none is.
	Unreadable string
}

// AnnotationSwitch is the one by which people stop an object.
func AnnotationSwitch() stoprecord.AnnotationSwitch {
	return stoprecord.AnnotationSwitch{
		Name:        torporv1alpha1.StoppedAnnotation,
		RequestedBy: torporv1alpha1.RequestedByAnnotation, RequestVersion: torporv1alpha1.RequestVersionAnnotation,
		Reason: torporv1alpha1.ReasonAnnotation, Until: torporv1alpha1.UntilAnnotation,
	}
}

// HasSwitch reports whether an object has an annotation of Torpor's: of others nothing is decided.
func HasSwitch(obj metav1.Object) bool {
	group := torporv1alpha1.GroupVersion().Group
	for name := range obj.GetAnnotations() {
		if domain, _, _ := strings.Cut(name, "/"); domain == group || strings.HasSuffix(domain, "."+group) {
			return true
		}
	}
	return false
}

// IsAsked reports whether somebody asks for a stop.
func IsAsked(obj metav1.Object) bool {
	return obj.GetAnnotations()[torporv1alpha1.StoppedAnnotation] == stoppedValue
}

// AskForStop asks for a stop of an object, without what was said of an earlier one.
func AskForStop(obj metav1.Object) { ask(obj, stoppedValue) }

// AskForStart takes back what somebody asked for, and what was said of it.
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

// ReadSwitch reads what the annotations say. A record that cannot be read counts as none; torpor.dev/restore that cannot be read is
// reported, since nothing can be restored.
func ReadSwitch(obj metav1.Object) SwitchState {
	annotations := obj.GetAnnotations()
	s := SwitchState{Refused: annotations[torporv1alpha1.StopRefusedAnnotation]}
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
	for name, text := range annotations {
		slumber, isSlumber := strings.CutPrefix(name, torporv1alpha1.SlumberAnnotationPrefix)
		var stop torporv1alpha1.ScheduledStop
		if isSlumber && parse(text, &stop) == nil && stop.Slumber == slumber {
			s.Scheduled = append(s.Scheduled, stop)
		}
	}
	slices.SortFunc(s.Scheduled, func(a, b torporv1alpha1.ScheduledStop) int { return strings.Compare(a.Slumber, b.Slumber) })
	s.Scheduled = s.Scheduled[:min(len(s.Scheduled), maxSlumbers)]
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

// FindScheduled returns the Slumber's stop that holds; nil if none does. One from before somebody resumed the object does not.
func (s SwitchState) FindScheduled(annotations map[string]string, now time.Time) *torporv1alpha1.ScheduledStop {
	return stoprecord.FindScheduled(s.ListStopsSinceResume(), annotations, now)
}

// ListStopsSinceResume returns the stops of Slumbers without those from before somebody resumed the object.
func (s SwitchState) ListStopsSinceResume() []torporv1alpha1.ScheduledStop {
	return slices.DeleteFunc(slices.Clone(s.Scheduled), func(stop torporv1alpha1.ScheduledStop) bool {
		return len(stop.Stops) == 0 || !stop.Stops[0].Since.After(s.ResumedAt) && !s.ResumedAt.IsZero()
	})
}

// IsKept reports whether Torpor keeps an object stopped, and nobody has changed that.
func (s SwitchState) IsKept(obj *unstructured.Unstructured) bool {
	return len(s.Saved) > 0 && holdsAll(obj.Object, s.Saved)
}

// IsRestoreDue reports whether an object is kept stopped although nothing asks for that any more.
func IsRestoreDue(obj metav1.Object, now time.Time) bool {
	is := ReadSwitch(obj)
	if len(is.Saved) == 0 || is.FindScheduled(obj.GetAnnotations(), now) != nil {
		return false
	}
	return !stoprecord.NextRecords(is.Records, AnnotationSwitch().ReadRequest(obj, IsAsked(obj)), now).Holds()
}

// IsStoppedWithoutSlumbers reports whether an object is stopped whatever Slumbers say: somebody asks for it, or its own switch was set before.
func (s SwitchState) IsStoppedWithoutSlumbers(obj *unstructured.Unstructured, operations []torporv1alpha1.StopOperation) bool {
	switch {
	case IsAsked(obj) && !s.Records.HasExpired():
		return true
	case len(s.Saved) == 0:
		return isSet(obj.Object, operations)
	default:
		return !slices.ContainsFunc(s.Saved, func(one SavedField) bool { return string(one.Before) != string(one.After) })
	}
}

// LastResume is when somebody last took a stop back, and who.
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

// ScheduledAnnotation is what a Slumber writes: the name of the annotation, and its value; empty if it wants nothing of the object.
func ScheduledAnnotation(stop torporv1alpha1.ScheduledStop, slumber string) (name, value string, err error) {
	name = torporv1alpha1.SlumberAnnotationPrefix + slumber
	if stop.Slumber == "" {
		return name, "", nil
	}
	data, err := json.Marshal(stop)
	if err != nil {
		return name, "", fmt.Errorf("encode a stop: %w", err)
	}
	return name, string(data), nil
}
