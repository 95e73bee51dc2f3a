// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"errors"
	"fmt"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// SetRevisionAnnotations writes the revision into the annotations of the changed app. The author and the time are written if
// a revision began, and kept if not.
func SetRevisionAnnotations(old, updated *korifiv1alpha1.CFApp, m RevisionState, by string, at time.Time) {
	want := m.ownedAnnotations()
	want[torporv1alpha1.RevisedByAnnotation], want[torporv1alpha1.RevisedAtAnnotation] = by, at.UTC().Format(time.RFC3339)
	if m.Cause == "" {
		for _, key := range []string{torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation} {
			want[key] = previousAnnotation(old, key)
		}
	}
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	for key, value := range want {
		if updated.Annotations[key] = value; value == "" {
			delete(updated.Annotations, key)
		}
	}
}

// ValidateRevisionAnnotations says what is wrong with a change that admission should have annotated already; nil if nothing is.
func ValidateRevisionAnnotations(old, updated *korifiv1alpha1.CFApp, by string) error {
	m, err := NextRevision(old, updated)
	if err != nil {
		return err
	}
	var wrong []error
	expect := func(key, want string) {
		if found := updated.Annotations[key]; found != want {
			wrong = append(wrong, unexpectedAnnotation(key, want, found))
		}
	}
	for key, want := range m.ownedAnnotations() {
		if key != torporv1alpha1.CauseAnnotation || m.Cause != "" {
			expect(key, want)
		}
	}
	if m.Cause != "" {
		expect(torporv1alpha1.RevisedByAnnotation, by)
		return errors.Join(wrong...)
	}
	for _, key := range []string{torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation} {
		expect(key, previousAnnotation(old, key))
	}
	return errors.Join(wrong...)
}

// ownedAnnotations are those that follow from the marks alone.
func (m RevisionState) ownedAnnotations() map[string]string {
	return map[string]string{
		korifiv1alpha1.RevisionAnnotation:         FormatRevision(m.Revision),
		korifiv1alpha1.LastStopRevisionAnnotation: FormatRevision(m.LastStop),
		torporv1alpha1.DropletAnnotation:          m.Droplet,
		torporv1alpha1.CauseAnnotation:            string(m.Cause),
	}
}

// rejectEdits refuses values that are neither what they were nor what they become. One that is missing is no edit: who
// replaces an object without knowing Torpor leaves it out.
func rejectEdits(old, updated *korifiv1alpha1.CFApp, m RevisionState) error {
	want := m.ownedAnnotations()
	if m.Cause == "" {
		for _, key := range []string{torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation} {
			want[key] = old.Annotations[key]
		}
	}
	for _, key := range ownedKeys() {
		found, ok := updated.Annotations[key]
		wanted, known := want[key]
		if ok && known && found != old.Annotations[key] && found != wanted {
			return unexpectedAnnotation(key, wanted, found)
		}
	}
	return nil
}

// ownedKeys are the annotations that admission writes, in the order in which they are complained of.
func ownedKeys() []string {
	return []string{
		korifiv1alpha1.RevisionAnnotation, korifiv1alpha1.LastStopRevisionAnnotation, torporv1alpha1.DropletAnnotation,
		torporv1alpha1.CauseAnnotation, torporv1alpha1.RevisedByAnnotation, torporv1alpha1.RevisedAtAnnotation,
	}
}

func unexpectedAnnotation(key, want, found string) error {
	return fmt.Errorf("metadata.annotations[%s]: expected %q, because Torpor keeps it; found %q; leave it as it is, and set %s to a new value to restart",
		key, want, found, torporv1alpha1.RestartRequestAnnotation)
}

func previousAnnotation(old *korifiv1alpha1.CFApp, key string) string {
	if old == nil {
		return ""
	}
	return old.Annotations[key]
}
