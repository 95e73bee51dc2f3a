// SPDX-License-Identifier: Apache-2.0

package stopadapter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// action is what was tried, as events name it.
const action = "Stop"

// ObservedSwitch is everything that Decide looks at.
type ObservedSwitch struct {
	Now time.Time
	// Object is nil if it is gone, or has nothing of a switch.
	Object *unstructured.Unstructured
	// Operations are what stops the object.
	Operations []torporv1alpha1.StopOperation
	// Refusal is why it must not be stopped, although it may be asked for; empty if it may.
	Refusal string
	// Manager is the field manager that last wrote one of the fields that a stop sets.
	Manager string
}

// SwitchPlan is what follows from what was observed.
type SwitchPlan struct {
	Rule string
	// Next is the object as it is to be. All that differs is written at once: a stop and what it replaces are never apart.
	Next         *unstructured.Unstructured
	Events       []decision.Event
	RequeueAfter time.Duration
}

// decisionStep is a decision that is being made.
type decisionStep struct {
	ObservedSwitch
	is   SwitchState
	plan SwitchPlan
	next SwitchState
	// annotations are to be written; those that are empty are to go.
	annotations map[string]string
}

// Decide says what becomes of an object. Asking it again after its plan was written changes nothing.
func Decide(o ObservedSwitch) SwitchPlan {
	if o.Object == nil {
		return SwitchPlan{Rule: "no switch"}
	}
	is := ReadSwitch(o.Object)
	s := &decisionStep{ObservedSwitch: o, is: is, next: is, annotations: map[string]string{}, plan: SwitchPlan{Rule: "nothing to do", Next: o.Object}}
	if !o.Object.GetDeletionTimestamp().IsZero() {
		s.plan.Rule = "deleted"
		return s.plan
	}
	s.plan.Next = o.Object.DeepCopy()
	s.updateRecords()
	scheduled := is.FindScheduled(o.Object.GetAnnotations(), o.Now)
	isWanted := s.next.Records.Holds() || scheduled != nil
	isChanged := isWanted && len(is.Saved) > 0 && !holdsAll(o.Object.Object, is.Saved)
	if isChanged && s.beginsStop() {
		isChanged = false
		s.revertOldStop()
	}
	if isChanged {
		s.yield()
	} else {
		s.stopOrRestore(isWanted, scheduled)
	}
	s.finish()
	return s.plan
}

// updateRecords keeps the record of what people ask for, and takes back a stop whose time is over.
func (s *decisionStep) updateRecords() {
	asked := AnnotationSwitch().ReadRequest(s.Object, IsAsked(s.Object))
	before := s.is.Records
	records := stoprecord.NextRecords(before, asked, s.Now)
	s.plan.Events = append(s.plan.Events, stoprecord.Events(before, records, torporv1alpha1.UntilAnnotation, action)...)
	if records.HasExpired() {
		records[0].Requested = false
		s.takeBack()
	}
	s.next.Records = records
}

// takeBack sets torpor.dev/stopped to false, and removes the reason and the time that were given with it.
func (s *decisionStep) takeBack() {
	s.annotations[torporv1alpha1.StoppedAnnotation] = startedValue
	for _, name := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.UntilNotedAnnotation, torporv1alpha1.ReasonAnnotation} {
		s.annotations[name] = ""
	}
}

// yield leaves an object to whoever has changed what a stop had set: they want it to run, or are a tool that keeps it as it says elsewhere. To stop
// it again would be a fight that nobody sees. The fields that nobody has changed are restored.
func (s *decisionStep) yield() {
	s.plan.Rule = "somebody has started it"
	by := "unknown"
	if s.Manager != "" {
		by = "unknown (field manager " + s.Manager + ")"
	}
	restoreFields(s.plan.Next.Object, s.is.Saved)
	s.annotations[torporv1alpha1.RestoreAnnotation] = ""
	// Times of an annotation have whole seconds, and a stop that began in this one is meant, too.
	s.annotations[torporv1alpha1.ResumedAnnotation] = formatTime(s.Now.Add(time.Second).Truncate(time.Second)) + " " + by
	if newest := s.next.Records.RequestedStop(); newest != nil && newest.EndedAt == nil {
		newest.EndedAt, newest.StartedBy, newest.Requested = new(metav1.NewTime(s.Now)), by, false
		s.takeBack()
	}
	s.plan.Events = append(s.plan.Events, decision.Event{
		Warning: true, Reason: EventStartedByOthers, Action: action,
		Note: "Expected the object to stay as the stop had set it, found it changed by " + by + "; it is left alone until the next stop. Of a tool that sets it back, stop what it applies",
	})
}

// beginsStop reports whether a person asks for a stop that nobody has seen before.
func (s *decisionStep) beginsStop() bool {
	newest, last := s.next.Records.RequestedStop(), s.is.Records.RequestedStop()
	return s.next.Records.Holds() && (last == nil || last.EndedAt != nil || last.RequestVersion != newest.RequestVersion || !last.Since.Equal(&newest.Since))
}

// revertOldStop restores what nobody has changed of an old stop, so that a new one saves the object as it is now, with what somebody has set.
func (s *decisionStep) revertOldStop() {
	restoreFields(s.plan.Next.Object, s.is.Saved)
	s.is.Saved, s.annotations[torporv1alpha1.RestoreAnnotation] = nil, ""
}

// stopOrRestore stops or restores the object.
func (s *decisionStep) stopOrRestore(isWanted bool, scheduled *torporv1alpha1.ScheduledStop) {
	switch isKept := len(s.is.Saved) > 0; {
	case s.is.Unreadable != "":
		s.refuse("expected " + s.is.Unreadable + " as Torpor wrote it, found something else; set what it should restore by hand, and remove it")
	case isWanted && !isKept && s.Refusal != "":
		s.refuse(s.Refusal)
	case isWanted && !isKept:
		s.stop(scheduled)
	case !isWanted && isKept:
		s.restore()
	case isWanted:
		s.plan.Rule = "stopped"
	default:
		s.annotations[torporv1alpha1.StopRefusedAnnotation] = ""
	}
}

func (s *decisionStep) refuse(why string) {
	s.plan.Rule = "refused"
	s.annotations[torporv1alpha1.StopRefusedAnnotation] = why
	if s.is.Refused != why {
		s.plan.Events = append(s.plan.Events, RefusalEvent(why))
	}
}

// RefusalEvent tells why an object is not changed.
func RefusalEvent(why string) decision.Event {
	return decision.Event{Warning: true, Reason: EventStopRefused, Action: action, Note: "The object is not stopped: " + why}
}

func (s *decisionStep) stop(scheduled *torporv1alpha1.ScheduledStop) {
	saved, err := applyOperations(s.plan.Next.Object, s.Operations)
	var data []byte
	if err == nil {
		data, err = json.Marshal(saved)
	}
	if err != nil {
		s.plan.Next = s.Object.DeepCopy() // Nothing is done by halves.
		delete(s.annotations, torporv1alpha1.RestoreAnnotation)
		s.refuse(err.Error())
		return
	}
	s.plan.Rule = "stop"
	s.annotations[torporv1alpha1.RestoreAnnotation] = string(data)
	s.annotations[torporv1alpha1.ResumedAnnotation], s.annotations[torporv1alpha1.StopRefusedAnnotation] = "", ""
	note := s.next.Records.Describe()
	if note == "" && scheduled != nil {
		note = stoprecord.Records(scheduled.Stops).Describe()
	}
	s.plan.Events = append(s.plan.Events, decision.Event{Reason: EventStopped, Action: action, Note: "The object is stopped" + note})
}

func (s *decisionStep) restore() {
	s.plan.Rule = "restore"
	kept := restoreFields(s.plan.Next.Object, s.is.Saved)
	s.annotations[torporv1alpha1.RestoreAnnotation] = ""
	note := "The object is as it was before the stop"
	if len(kept) > 0 {
		note = "The object is as it was before the stop, but for what cannot be brought back: " + strings.Join(kept, ", ")
	}
	if len(s.next.Records) > 0 && s.is.Records.Holds() {
		note += "; started by " + s.next.Records[0].StartedBy
	}
	s.plan.Events = append(s.plan.Events, decision.Event{Warning: len(kept) > 0, Reason: EventRestored, Action: "Start", Note: note})
}

// finish writes the annotations, and says when to look again.
func (s *decisionStep) finish() {
	if !slices.EqualFunc(s.is.Records, s.next.Records, isSameRecord) {
		s.annotations[torporv1alpha1.StopsAnnotation] = encodeRecords(s.next.Records)
	}
	s.writeAnnotations()
	if newest := s.next.Records.RequestedStop(); newest != nil && newest.Until != nil {
		s.requeueAt(newest.Until.Time)
	}
	s.requeueAt(stoprecord.ScheduledEnd(s.is.Scheduled, s.Object.GetAnnotations(), s.Now))
	skipped, _ := stoprecord.ReadSkip(s.Object.GetAnnotations())
	s.requeueAt(skipped)
}

func (s *decisionStep) writeAnnotations() {
	annotations := s.plan.Next.GetAnnotations()
	for name, value := range s.annotations {
		if value == "" {
			delete(annotations, name)
			continue
		}
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
	}
	s.plan.Next.SetAnnotations(annotations)
}

// encodeRecords leaves out the oldest stops of a record that is too large to be read.
func encodeRecords(records stoprecord.Records) string {
	for len(records) > 0 {
		data, err := json.Marshal(records)
		if err == nil && len(data) <= maxAnnotation {
			return string(data)
		}
		records = records[:len(records)-1]
	}
	return ""
}

func isSameRecord(a, b torporv1alpha1.StopRecord) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && string(one) == string(other)
}

func (s *decisionStep) requeueAt(moment time.Time) {
	if left := moment.Sub(s.Now); left > 0 && (s.plan.RequeueAfter == 0 || left < s.plan.RequeueAfter) {
		s.plan.RequeueAfter = left
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FindManager returns the field manager that last wrote the field of a path, as the API server noted it; empty if it did not.
func FindManager(obj metav1.Object, paths []string) string {
	var found metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Time == nil || entry.Subresource == "status" {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // Who has changed something is told to people only.
		}
		for _, path := range paths {
			names := parsePath(path)
			for i := range names {
				names[i] = "f:" + names[i]
			}
			if _, isThere := readField(fields, names); isThere && (found.Time == nil || entry.Time.After(found.Time.Time)) {
				found = entry
			}
		}
	}
	return found.Manager
}

// ListPaths returns the fields that a stop sets.
func ListPaths(operations []torporv1alpha1.StopOperation) (paths []string) {
	for _, operation := range operations {
		paths = append(paths, operation.Path)
	}
	return paths
}

// RefuseOwned says that another object decides what an object is; empty if none does.
func RefuseOwned(obj metav1.Object) string {
	owner := metav1.GetControllerOf(obj)
	if owner == nil {
		return ""
	}
	return fmt.Sprintf("expected an object of its own, found that %s %s owns it; stop that", owner.Kind, owner.Name)
}
