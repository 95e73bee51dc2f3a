// SPDX-License-Identifier: Apache-2.0

// Package foreignswitch makes of a StopAdapter a kind that can be stopped, and says what is wrong with one. It is pure.
package foreignswitch

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stopadapter"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

// adapterQuestions are the compiled ones of an adapter.
type adapterQuestions struct{ asleep, awake, stoppable stopadapter.Expression }

// NewKind returns the kind that an adapter is about.
func NewKind(a *torporv1alpha1.StopAdapter) (stoppable.Kind, error) {
	target := a.Spec.Target
	if stoppable.FindGroup(target.Kind) == target.Group {
		return stoppable.Kind{}, fmt.Errorf("spec.target: expected a kind that Torpor does not know, found %s, which it stops without an adapter; delete this one", target.Kind)
	}
	if err := stopadapter.ValidateOperations(a.Spec.Stop); err != nil {
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
		into       *stopadapter.Expression
	}{{"asleep", state.Asleep, &q.asleep}, {"awake", state.Awake, &q.awake}, {"stoppable", state.Stoppable, &q.stoppable}} {
		if *one.into, err = stopadapter.CompileExpression(one.text); err != nil {
			return q, fmt.Errorf("spec.state.%s: %w; correct it", one.name, err)
		}
	}
	return q, nil
}

// read asks an object. A question without an answer is answered by no, and says why. Before its own controller has looked at an object its status
// is an empty one.
func (q adapterQuestions) read(u *unstructured.Unstructured) stoppable.ObservedActivity {
	object := u.Object
	if object["status"] == nil {
		object = maps.Clone(object)
		object["status"] = map[string]any{}
	}
	var rest stoppable.ObservedActivity
	for _, one := range []struct {
		question stopadapter.Expression
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
