// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/internal/decision"
)

func TestSetCondition(t *testing.T) {
	first, second := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 13, 0, 0, 0, time.UTC)
	condition := func(status metav1.ConditionStatus, reason, message string, generation int64, at time.Time) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(at)}
	}
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Theirs"}
	for name, row := range map[string]struct {
		before []metav1.Condition
		set    metav1.Condition
		want   []metav1.Condition
	}{
		"a new condition is added after those of other controllers": {
			[]metav1.Condition{other},
			condition("True", "Runs", "It runs", 0, time.Time{}),
			[]metav1.Condition{other, condition("True", "Runs", "It runs", 7, second)},
		},
		"a changed reason keeps the transition time": {
			[]metav1.Condition{condition("False", "Starting", "", 6, first)},
			condition("False", "Waiting", "", 0, time.Time{}),
			[]metav1.Condition{condition("False", "Waiting", "", 7, first)},
		},
		"a changed status sets the transition time": {
			[]metav1.Condition{condition("False", "Starting", "", 6, first), other},
			condition("True", "Runs", "", 0, time.Time{}),
			[]metav1.Condition{condition("True", "Runs", "", 7, second), other},
		},
		"a message is cut to the limit of the API": {
			nil, condition("True", "Runs", strings.Repeat("m", maxMessage+1), 0, time.Time{}),
			[]metav1.Condition{condition("True", "Runs", strings.Repeat("m", maxMessage), 7, second)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			SetCondition(&row.before, row.set, 7, clocktesting.NewFakePassiveClock(second))
			if diff := cmp.Diff(row.want, row.before); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongNotesAreCut(t *testing.T) {
	var events eventList
	EmitEvents(&events, &corev1.Pod{}, []decision.Event{{Reason: "Talks", Note: strings.Repeat("é", maxNote)}})
	note := strings.TrimPrefix(events[0], "Normal Talks: ")
	if len(note) > maxNote || strings.ToValidUTF8(note, "?") != note {
		t.Errorf("a note of %d bytes, want at most %d and no split characters", len(note), maxNote)
	}
}
