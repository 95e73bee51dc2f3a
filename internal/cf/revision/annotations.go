// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"errors"
	"fmt"
	"maps"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// SetRevisionAnnotations writes the revision to the annotations of the changed app. If a revision begins, it sets the
// revision's author and time, and removes those of the app's start. If the app starts, it sets those of the start.
// Otherwise it keeps them.
func SetRevisionAnnotations(old, updated *korifiv1alpha1.CFApp, m RevisionState, by string, at time.Time) {
	want, now := m.ownedAnnotations(), at.UTC().Format(time.RFC3339)
	want[torporv1alpha1.RevisedByAnnotation], want[torporv1alpha1.RevisedAtAnnotation] = by, now
	want[torporv1alpha1.StartedByAnnotation], want[torporv1alpha1.StartedAtAnnotation] = by, now
	maps.Copy(want, keptAnnotations(old, updated, m))
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	removeStopLeftovers(old, updated)
	for key, value := range want {
		if updated.Annotations[key] = value; value == "" {
			delete(updated.Annotations, key)
		}
	}
}

// ValidateRevisionAnnotations returns an error if the annotations of a change differ from those that admission writes.
// It does not compare new times.
func ValidateRevisionAnnotations(old, updated *korifiv1alpha1.CFApp, by string) error {
	m, err := NextRevision(old, updated)
	if err != nil {
		return err
	}
	var wrong []error
	expected := m.ownedAnnotations()
	expected[torporv1alpha1.RevisedByAnnotation], expected[torporv1alpha1.StartedByAnnotation] = by, by
	maps.Copy(expected, keptAnnotations(old, updated, m))
	for key, want := range expected {
		if found := updated.Annotations[key]; found != want {
			wrong = append(wrong, unexpectedAnnotation(key, want, found))
		}
	}
	return errors.Join(wrong...)
}

// keptAnnotations returns the annotations whose values the change keeps: the cause, authors and times. It also returns
// the annotation with ended revisions. If a revision begins, the annotations about the app's start are empty.
func keptAnnotations(old, updated *korifiv1alpha1.CFApp, m RevisionState) map[string]string {
	kept := map[string]string{torporv1alpha1.EndedRevisionsAnnotation: keepEndedRevisions(old, m)}
	if m.Cause == "" {
		for _, key := range []string{torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation} {
			kept[key] = previousAnnotation(old, key)
		}
	}
	starts := isStart(old, updated)
	for _, key := range []string{torporv1alpha1.StartedByAnnotation, torporv1alpha1.StartedAtAnnotation} {
		if starts {
			continue
		}
		if kept[key] = ""; m.Cause == "" {
			kept[key] = previousAnnotation(old, key)
		}
	}
	return kept
}

// isStart reports whether a change starts a stopped app.
func isStart(old, updated *korifiv1alpha1.CFApp) bool {
	return old != nil && old.Spec.DesiredState != korifiv1alpha1.StartedState && updated.Spec.DesiredState == korifiv1alpha1.StartedState
}

// removeStopLeftovers removes the annotations with the end and the reason of a stop when the app starts, unless the
// same change sets them.
func removeStopLeftovers(old, updated *korifiv1alpha1.CFApp) {
	if !isStart(old, updated) {
		return
	}
	for _, key := range []string{torporv1alpha1.UntilAnnotation, torporv1alpha1.ReasonAnnotation} {
		if updated.Annotations[key] == old.Annotations[key] {
			delete(updated.Annotations, key)
		}
	}
}

// ownedAnnotations returns the annotations that depend only on the state.
func (m RevisionState) ownedAnnotations() map[string]string {
	return map[string]string{
		korifiv1alpha1.RevisionAnnotation:         FormatRevision(m.Revision),
		korifiv1alpha1.LastStopRevisionAnnotation: FormatRevision(m.LastStop),
		torporv1alpha1.DropletAnnotation:          m.Droplet,
		torporv1alpha1.CauseAnnotation:            string(m.Cause),
	}
}

// rejectEdits returns an error if an annotation that admission writes has neither the old nor the new value. It ignores
// new authors and times, and missing annotations, which clients without support for Torpor omit when they replace an
// object.
func rejectEdits(old, updated *korifiv1alpha1.CFApp, m RevisionState) error {
	want := m.ownedAnnotations()
	maps.Copy(want, keptAnnotations(old, updated, m))
	for _, key := range ownedKeys() {
		found, ok := updated.Annotations[key]
		wanted, known := want[key]
		if ok && known && found != old.Annotations[key] && found != wanted {
			return unexpectedAnnotation(key, wanted, found)
		}
	}
	return nil
}

// ownedKeys returns the keys of the annotations about revisions that admission writes, in the order in which they are
// validated.
func ownedKeys() []string {
	return []string{
		korifiv1alpha1.RevisionAnnotation, korifiv1alpha1.LastStopRevisionAnnotation, torporv1alpha1.DropletAnnotation,
		torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation,
		torporv1alpha1.StartedByAnnotation, torporv1alpha1.StartedAtAnnotation, torporv1alpha1.EndedRevisionsAnnotation,
	}
}

func unexpectedAnnotation(key, want, found string) error {
	return fmt.Errorf("metadata.annotations[%s]: expected %q, which Torpor has set; found %q; "+
		"leave the annotation unchanged, and set %s to a new value to restart the app",
		key, want, found, torporv1alpha1.RestartRequestAnnotation)
}

func previousAnnotation(old *korifiv1alpha1.CFApp, key string) string {
	if old == nil {
		return ""
	}
	return old.Annotations[key]
}
