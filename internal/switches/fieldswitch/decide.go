// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// action is the Action of the events.
const action = "Stop"

// ObservedSwitch is everything that Decide uses.
type ObservedSwitch struct {
	Now time.Time
	// Object is the object, or nil if it no longer exists or has no annotation of Torpor.
	Object *unstructured.Unstructured
	// Operations stop the object.
	Operations []torporv1alpha1.StopOperation
	// Refusal is the reason why the object must not be stopped even if a stop is requested; empty if it may be.
	Refusal string
	// Manager is the field manager that last wrote one of the fields that a stop sets, and WrittenAt is when; empty
	// and zero if that is not recorded.
	Manager   string
	WrittenAt time.Time
	// Rate is what a stop of the object saves per second. Moment is the time of this observation, and how long the
	// object's stop has lasted then.
	Rate   savings.Rate
	Moment savings.Moment
}

// SwitchPlan is the result of a decision.
type SwitchPlan struct {
	Rule string
	// Next is the desired object. All differences are written in one patch, so that a stop is never stored without
	// the values that it replaced.
	Next         *unstructured.Unstructured
	Events       []decision.Event
	RequeueAfter time.Duration
}

// decisionStep is a decision in progress.
type decisionStep struct {
	ObservedSwitch
	is   SwitchState
	plan SwitchPlan
	next SwitchState
	// saved are the savings after the changes decided so far.
	saved *torporv1alpha1.Savings
	// annotations are the annotations to write; an empty value removes the annotation.
	annotations map[string]string
}

// Decide returns the plan for an object. It is idempotent: if it is called again after its plan was written, the new
// plan contains no changes.
func Decide(o ObservedSwitch) SwitchPlan {
	if o.Object == nil {
		return SwitchPlan{Rule: "no switch"}
	}
	is := ReadSwitch(o.Object)
	s := &decisionStep{
		ObservedSwitch: o, is: is, next: is, annotations: map[string]string{}, plan: SwitchPlan{Rule: "nothing to do", Next: o.Object},
		saved: savings.ReadAnnotation(o.Object.GetAnnotations()),
	}
	if !o.Object.GetDeletionTimestamp().IsZero() {
		s.plan.Rule = "object is being deleted"
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

// updateRecords updates the record of requested stops, and withdraws a stop whose end time has passed.
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

// takeBack withdraws a requested stop: it sets torpor.dev/stopped to false, and removes the reason and the end of
// the stop.
func (s *decisionStep) takeBack() {
	s.annotations[torporv1alpha1.StoppedAnnotation] = startedValue
	for _, name := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.UntilNotedAnnotation, torporv1alpha1.ReasonAnnotation} {
		s.annotations[name] = ""
	}
}

// yield ends a stop because another writer has changed a field that the stop had set. That writer is a user who wants
// the object to run, or a tool that applies a manifest. If Torpor stopped the object again, Torpor and the tool would
// overwrite each other in a loop. yield restores the fields that still have the value of the stop.
func (s *decisionStep) yield() {
	s.plan.Rule = "started by another writer"
	s.endSavingsAtWrite()
	by := "unknown"
	if s.Manager != "" {
		by = "unknown (field manager " + s.Manager + ")"
	}
	restoreFields(s.plan.Next.Object, s.is.Saved)
	s.annotations[torporv1alpha1.RestoreAnnotation] = ""
	// Times in an annotation have whole seconds. The time is rounded up, so that it is later than the beginning of a
	// stop in the same second.
	s.annotations[torporv1alpha1.ResumedAnnotation] = formatTime(s.Now.Add(time.Second).Truncate(time.Second)) + " " + by
	if newest := s.next.Records.RequestedStop(); newest != nil && newest.EndedAt == nil {
		newest.EndedAt, newest.StartedBy, newest.Requested = new(metav1.NewTime(s.Now)), by, false
		s.takeBack()
	}
	s.plan.Events = append(s.plan.Events, decision.Event{
		Warning: true, Reason: EventStartedByOthers, Action: action,
		Note: "Expected the fields to keep the values that the stop has set, found other values, set by " + by + "; Torpor does not change the object until the next stop. If a tool restores the fields, stop the object from which the tool derives them",
	})
}

// beginsStop reports whether a user requests a stop that is not recorded yet.
func (s *decisionStep) beginsStop() bool {
	newest, last := s.next.Records.RequestedStop(), s.is.Records.RequestedStop()
	return s.next.Records.Holds() && (last == nil || last.EndedAt != nil || last.RequestVersion != newest.RequestVersion || !last.Since.Equal(&newest.Since))
}

// revertOldStop restores the unchanged fields of an old stop, so that a new stop saves the current state of the
// object, including changes by other writers.
func (s *decisionStep) revertOldStop() {
	s.endSavingsAtWrite()
	restoreFields(s.plan.Next.Object, s.is.Saved)
	s.is.Saved, s.annotations[torporv1alpha1.RestoreAnnotation] = nil, ""
}

// stopOrRestore stops or restores the object.
func (s *decisionStep) stopOrRestore(isWanted bool, scheduled *torporv1alpha1.ScheduledStop) {
	switch isKept := len(s.is.Saved) > 0; {
	case s.is.Unreadable != "":
		s.refuse(fmt.Sprintf("expected %s as written by Torpor, found other content; restore the fields by hand, and remove the annotation", s.is.Unreadable))
	case isWanted && !isKept && s.Refusal != "":
		s.refuse(s.Refusal)
	case isWanted && !isKept:
		s.stop(scheduled)
	case !isWanted && isKept:
		s.restore()
	case isWanted:
		s.plan.Rule = "object is stopped"
	default:
		s.annotations[torporv1alpha1.StopRefusedAnnotation] = ""
	}
}

func (s *decisionStep) refuse(why string) {
	s.plan.Rule = "stop is refused"
	s.annotations[torporv1alpha1.StopRefusedAnnotation] = why
	if s.is.Refused != why {
		s.plan.Events = append(s.plan.Events, RefusalEvent(why))
	}
}

// RefusalEvent returns the event that reports why an object is not stopped or restored.
func RefusalEvent(why string) decision.Event {
	return decision.Event{Warning: true, Reason: EventStopRefused, Action: action, Note: "The object is not changed: " + why}
}

func (s *decisionStep) stop(scheduled *torporv1alpha1.ScheduledStop) {
	saved, err := applyOperations(s.plan.Next.Object, s.Operations)
	var data []byte
	if err == nil {
		data, err = json.Marshal(saved)
	}
	if err != nil {
		s.plan.Next = s.Object.DeepCopy() // Discard the operations that were applied before the error.
		delete(s.annotations, torporv1alpha1.RestoreAnnotation)
		s.refuse(err.Error())
		return
	}
	s.plan.Rule = "stop the object"
	s.saved = savings.Next(s.saved, s.Rate, s.Moment)
	s.annotations[torporv1alpha1.RestoreAnnotation] = string(data)
	s.annotations[torporv1alpha1.ResumedAnnotation], s.annotations[torporv1alpha1.StopRefusedAnnotation] = "", ""
	note := s.next.Records.Describe()
	if note == "" && scheduled != nil {
		note = stoprecord.Records(scheduled.Stops).Describe()
	}
	s.plan.Events = append(s.plan.Events, decision.Event{Reason: EventStopped, Action: action, Note: "The object is stopped" + note})
}

func (s *decisionStep) restore() {
	s.plan.Rule = "restore the object"
	kept := restoreFields(s.plan.Next.Object, s.is.Saved)
	s.annotations[torporv1alpha1.RestoreAnnotation] = ""
	note := "The object is restored to its state before the stop"
	if len(kept) > 0 {
		note = "The object is restored to its state before the stop, except for fields that cannot be restored: " + strings.Join(kept, ", ")
	}
	if len(s.next.Records) > 0 && s.is.Records.Holds() {
		note += "; started by " + s.next.Records[0].StartedBy
	}
	s.plan.Events = append(s.plan.Events, decision.Event{Warning: len(kept) > 0, Reason: EventRestored, Action: "Start", Note: note})
}

// endSavingsAtWrite ends the savings at the time when another writer changed a field that the stop had set. This time
// may be before the start of the manager.
func (s *decisionStep) endSavingsAtWrite() {
	until := s.Moment
	if s.saved != nil && s.saved.Since != nil && !s.WrittenAt.IsZero() {
		until.Counted = min(until.Counted, max(0, s.WrittenAt.Sub(s.saved.Since.Time)))
	}
	s.saved = savings.Next(s.saved, savings.Rate{}, until)
}

// writeSavings writes the savings in the same patch as the stop or the start. An object that Torpor does not keep
// stopped saves nothing.
func (s *decisionStep) writeSavings() {
	kept, isChanged := s.annotations[torporv1alpha1.RestoreAnnotation]
	if isKept := isChanged && kept != "" || !isChanged && len(s.is.Saved) > 0; !isKept {
		s.saved = savings.Next(s.saved, savings.Rate{}, s.Moment)
	}
	if s.saved == nil || reflect.DeepEqual(s.saved, savings.ReadAnnotation(s.Object.GetAnnotations())) {
		return
	}
	if text, err := savings.FormatAnnotation(s.saved); err == nil {
		s.annotations[torporv1alpha1.SavingsAnnotation] = text
	}
}

// finish writes the annotations and sets the time of the next reconciliation.
func (s *decisionStep) finish() {
	s.writeSavings()
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

// encodeRecords encodes the records of stops, and omits the oldest stops until the result is small enough to be
// read.
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

// FindLastWrite returns the field manager that last wrote one of the fields, and the time of this write. It reads both
// from the object's managedFields, and returns empty values if they contain no such write.
func FindLastWrite(obj metav1.Object, paths []string) (manager string, at time.Time) {
	var found metav1.ManagedFieldsEntry
	for _, entry := range obj.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Time == nil || entry.Subresource == "status" {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // The field manager is only shown to users, so an invalid entry is skipped.
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
	if found.Time == nil {
		return "", time.Time{}
	}
	return found.Manager, found.Time.Time
}

// ListPaths returns the paths of the fields that a stop sets.
func ListPaths(operations []torporv1alpha1.StopOperation) (paths []string) {
	for _, operation := range operations {
		paths = append(paths, operation.Path)
	}
	return paths
}

// RefuseOwned returns the reason why an object with a controlling owner must not be stopped, or "" if the object has
// no such owner.
func RefuseOwned(obj metav1.Object) string {
	owner := metav1.GetControllerOf(obj)
	if owner == nil {
		return ""
	}
	return fmt.Sprintf("expected an object without a controller, found that %s %s owns it; stop the owner instead", owner.Kind, owner.Name)
}
