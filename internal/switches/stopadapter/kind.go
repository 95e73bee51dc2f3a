// SPDX-License-Identifier: Apache-2.0

// Package stopadapter makes a stoppable kind from a StopAdapter, or returns the error in its spec. It has no side
// effects.
package stopadapter

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stoppable"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
)

// adapterQuestions are the compiled expressions of an adapter.
type adapterQuestions struct{ asleep, awake, stoppable fieldswitch.Expression }

// NewKind returns the kind that an adapter describes.
func NewKind(a *torporv1alpha1.StopAdapter) (stoppable.Kind, error) {
	target := a.Spec.Target
	if stoppable.FindGroup(target.Kind) == target.Group {
		return stoppable.Kind{}, fmt.Errorf("spec.target: expected a kind without built-in support, found %s, which Torpor stops without an adapter; delete this adapter", target.Kind)
	}
	if err := fieldswitch.ValidateOperations(a.Spec.Stop); err != nil {
		return stoppable.Kind{}, fmt.Errorf("spec.stop%w", err)
	}
	questions, err := compileQuestions(a.Spec.State)
	if err != nil {
		return stoppable.Kind{}, err
	}
	gvk := schema.GroupVersionKind{Group: target.Group, Version: target.Version, Kind: target.Kind}
	return stoppable.NewSwitched(gvk, stoppable.FieldSwitch{Part: "switch", Operations: a.Spec.Stop}, questions.read), nil
}

func compileQuestions(state torporv1alpha1.StopAdapterState) (q adapterQuestions, err error) {
	for _, one := range []struct {
		name, text string
		into       *fieldswitch.Expression
	}{{"asleep", state.Asleep, &q.asleep}, {"awake", state.Awake, &q.awake}, {"stoppable", state.Stoppable, &q.stoppable}} {
		if *one.into, err = fieldswitch.CompileExpression(one.text); err != nil {
			return q, fmt.Errorf("spec.state.%s: %w; correct it", one.name, err)
		}
	}
	return q, nil
}

// read evaluates the expressions for an object. An expression without a result counts as false, and the message has
// the error. An object without a status, which its own controller has not seen yet, is evaluated with an empty one.
func (q adapterQuestions) read(u *unstructured.Unstructured) stoppable.ObservedActivity {
	object := u.Object
	if object["status"] == nil {
		object = maps.Clone(object)
		object["status"] = map[string]any{}
	}
	var rest stoppable.ObservedActivity
	for _, one := range []struct {
		question fieldswitch.Expression
		into     *bool
	}{{q.asleep, &rest.IsQuiet}, {q.awake, &rest.IsReady}, {q.stoppable, &rest.IsStoppable}} {
		is, err := one.question.EvaluateOn(object)
		if err != nil {
			rest.Message = err.Error()
		}
		*one.into = is
	}
	return rest
}
