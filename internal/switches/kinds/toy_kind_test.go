// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// toyTrains is a kind that is stopped by spec.paused. The file of a new kind must contain no more than this code.
type toyTrains struct{}

// GVK implements Switchable.
func (toyTrains) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "toys.example.com", Version: "v1", Kind: "Train"}
}

// Names implements Switchable.
func (toyTrains) Names() []string { return []string{"train", "trains"} }

// Switch implements Switchable.
func (toyTrains) Switch() *kinds.FieldSwitch {
	return &kinds.FieldSwitch{
		Part:       "wheels",
		Operations: []torporv1alpha1.StopOperation{{Op: torporv1alpha1.AddOperation, Path: "/spec/paused", Value: &torporv1alpha1.JSONValue{Raw: []byte("true")}}},
		ReadActivity: func(u *unstructured.Unstructured) kinds.ObservedActivity {
			isRolling, _, _ := unstructured.NestedBool(u.Object, "status", "rolling")
			return kinds.ObservedActivity{IsStoppable: true, IsQuiet: !isRolling, IsReady: isRolling}
		},
	}
}

// TestToyKindIsStopped registers a kind in a separate registry, and follows an object through a stop and a start.
func TestToyKindIsStopped(t *testing.T) {
	t.Parallel()
	registry := kinds.NewRegistry(kinds.NewSwitched(toyTrains{}).Definition)
	train := registry[0]
	obj := train.New().(*unstructured.Unstructured)
	obj.SetName("express")
	obj.Object["status"] = map[string]any{"rolling": true}
	if row := train.FindRow(obj, "wheels"); row.State != "running" || train.HasRows(obj) {
		t.Errorf("expected a running train that was never stopped, found %+v", row)
	}
	reason := "the children sleep"
	expectChange(t, train, obj, kinds.Change{Reason: &reason})
	if row := train.FindRow(obj, "wheels"); row.State != "stopping" || !row.IsAsked || !train.HasRows(obj) || row.StartCommand() != "kubectl torpor start -n  train/express" {
		t.Errorf("expected a train that is asked to stop, found %+v", row)
	}
	if found := obj.GetAnnotations()[torporv1alpha1.ReasonAnnotation]; found != reason {
		t.Errorf("expected the reason %q, found %q", reason, found)
	}
	expectChange(t, train, obj, kinds.Change{IsStart: true})
	if row := train.FindRow(obj, "wheels"); row.State != "running" || obj.GetAnnotations()[torporv1alpha1.ReasonAnnotation] != "" {
		t.Errorf("expected a running train without a reason, found %+v", row)
	}
}

// TestKindsDefineNamesNotesAndPlan reads the names, the notes and the plan of a kind in a separate registry.
func TestKindsDefineNamesNotesAndPlan(t *testing.T) {
	t.Parallel()
	registry := kinds.NewRegistry(kinds.NewSwitched(toyTrains{}).Definition)
	train := registry[0]
	if !train.HasName("Trains") || train.Resource() != "trains" || !train.IsSwitched() || !slices.Equal(train.PartNames(), []string{"wheels"}) {
		t.Errorf("expected the names of trains and the part wheels, found %q and %q", train.Names(), train.PartNames())
	}
	if noted := registry.ListNotes(); len(noted) != 1 || noted[0].Path != "/note-workloads" {
		t.Errorf("expected that the requesters of workloads are recorded, found %+v", noted)
	}
	planner, isPlanned := train.Definition.(kinds.Planner)
	if !isPlanned || len(planner.ListRelated(train.New())) != 0 {
		t.Fatal("expected a plan that needs no other objects, found none")
	}
	plan := planner.Plan(kinds.PlanSubject{Object: train.New(), Part: "wheels"}, preflight.PlanRequest{})
	if len(plan.Effects) < 2 || len(plan.Findings) > 0 {
		t.Errorf("expected a plan with effects and without findings, found %+v", plan)
	}
}

func expectChange(t *testing.T, k kinds.Kind, obj kinds.Object, c kinds.Change) {
	t.Helper()
	part := k.FindPart(k.PartNames()[0])
	if err := c.Apply(obj, part, k.FindRow(obj, part.Name), now()); err != nil {
		t.Fatal(err)
	}
}
