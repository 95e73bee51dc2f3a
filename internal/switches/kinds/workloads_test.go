// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestWorkloadsAreAsleepAndAwake stops and starts the example of each workload, with the statuses that its controller
// reports, and expects the kind to read them as asleep or awake.
func TestWorkloadsAreAsleepAndAwake(t *testing.T) {
	t.Parallel()
	for _, k := range kinds.ListWorkloads() {
		t.Run(k.Name(), func(t *testing.T) {
			t.Parallel()
			example := testenv.ReadWorkload(t, k.Name(), k.Switch().Operations)
			u := example.Build(types.NamespacedName{Namespace: "dev", Name: example.Name})
			if u.GroupVersionKind() != k.GVK() {
				t.Fatalf("expected an example of %s, found %s", k.GVK(), u.GroupVersionKind())
			}
			u.SetGeneration(1)
			before, _, _ := unstructured.NestedMap(u.Object, "spec")
			example.ReportStatus(u)
			expectActivity(t, k, u, "running object", false, true)
			fieldswitch.AskForStop(u)
			u = decide(k, u)
			expectActivity(t, k, u, "object that stops", false, false)
			example.ReportStatus(u)
			expectActivity(t, k, u, "stopped object", true, false)
			if state := k.ReadState(u, now()); !state.IsAsleep || state.IsAwake {
				t.Errorf("stopped object: expected it to be asleep, found %+v", state)
			}
			expectNoStopAfterEnd(t, k, u)
			fieldswitch.AskForStart(u)
			u = decide(k, u)
			example.ReportStatus(u)
			expectActivity(t, k, u, "started object", false, true)
			after, _, _ := unstructured.NestedMap(u.Object, "spec")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("spec (-before +after):\n%s", diff)
			}
		})
	}
}

// expectNoStopAfterEnd expects that a user's stop of a stopped object no longer counts once its end has passed, even if no
// controller has recorded that yet.
func expectNoStopAfterEnd(t *testing.T, k kinds.Kind, stopped *unstructured.Unstructured) {
	t.Helper()
	u, end := stopped.DeepCopy(), now().Add(time.Hour)
	annotations := u.GetAnnotations()
	annotations[torporv1alpha1.UntilAnnotation] = end.Format(time.RFC3339)
	u.SetAnnotations(annotations)
	u = decide(k, u)
	u.SetGeneration(stopped.GetGeneration()) // Only annotations change.
	for at, want := range map[time.Time]bool{end.Add(-time.Second): true, end: false} {
		if state := k.ReadState(u, at); state.IsStoppedWithoutSlumbers != want || !state.IsAsleep {
			t.Errorf("%s: expected an object asleep, with a stop that counts: %t; found %+v", at.Format(time.TimeOnly), want, state)
		}
	}
}

// decide returns the object that a pass of the kind's switch writes. The write of a spec increments the generation.
func decide(k kinds.Kind, u *unstructured.Unstructured) *unstructured.Unstructured {
	next := fieldswitch.Decide(fieldswitch.ObservedSwitch{Now: now(), Object: u, Operations: k.Switch().Operations, Manager: "torpor"}).Next.DeepCopy()
	next.SetGeneration(u.GetGeneration() + 1)
	return next
}

func expectActivity(t *testing.T, k kinds.Kind, u *unstructured.Unstructured, what string, isQuiet, isReady bool) {
	t.Helper()
	found := k.Switch().ReadActivity(u)
	if found.IsQuiet != isQuiet || found.IsReady != isReady {
		t.Errorf("%s: expected that it is quiet: %t, and ready: %t; found %+v", what, isQuiet, isReady, found)
	}
}
