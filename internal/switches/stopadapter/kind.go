// SPDX-License-Identifier: Apache-2.0

// Package stopadapter converts a StopAdapter to a stoppable kind, or returns the error in its spec. It has no side
// effects.
package stopadapter

import (
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// adapterQuestions are the compiled expressions of an adapter.
type adapterQuestions struct{ asleep, awake, stoppable fieldswitch.Expression }

// NewKind returns the kind that an adapter describes.
func NewKind(a *torporv1alpha1.StopAdapter) (kinds.Kind, error) {
	target := a.Spec.Target
	if kinds.IsBuiltIn(schema.GroupKind{Group: target.Group, Kind: target.Kind}) {
		return kinds.Kind{}, fmt.Errorf("spec.target: expected a kind without built-in support, found %s, which Torpor stops without an adapter; delete this adapter", target.Kind)
	}
	if isReserved(target) {
		return kinds.Kind{}, fmt.Errorf("spec.target: expected a kind of another project, found %s of %s, which Torpor writes for another feature; delete this adapter", target.Kind, target.Group)
	}
	if err := fieldswitch.ValidateOperations(a.Spec.Stop); err != nil {
		return kinds.Kind{}, fmt.Errorf("spec.stop%w", err)
	}
	questions, err := compileQuestions(a.Spec.State)
	if err != nil {
		return kinds.Kind{}, err
	}
	return kinds.NewSwitched(&adaptedKind{a.Name, target, &kinds.FieldSwitch{Part: "switch", Operations: a.Spec.Stop, ReadActivity: questions.read}}), nil
}

// isReserved reports whether Torpor may have permissions for a kind because of another feature. The administrator
// granted these permissions to Torpor, not to the authors of StopAdapters and Slumbers.
func isReserved(target torporv1alpha1.StopAdapterTarget) bool {
	switch target.Group {
	case torporv1alpha1.GroupVersion().Group, hivev1.GroupVersion().Group, hiveinternalv1alpha1.GroupVersion().Group,
		mocov1beta2.GroupVersion().Group, korifiv1alpha1.GroupVersion().Group, eiriniv1.GroupVersion().Group:
		return true
	case "batch":
		return target.Kind == "Job"
	case "gateway.networking.k8s.io":
		return target.Kind == "HTTPRoute"
	case "networking.k8s.io":
		return target.Kind == "Ingress" || target.Kind == "NetworkPolicy"
	case "policy":
		return target.Kind == "PodDisruptionBudget"
	}
	return false
}

// adaptedKind is the kind that an adapter describes.
type adaptedKind struct {
	adapter string
	target  torporv1alpha1.StopAdapterTarget
	how     *kinds.FieldSwitch
}

// GVK implements kinds.Switchable.
func (k *adaptedKind) GVK() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.target.Group, Version: k.target.Version, Kind: k.target.Kind}
}

// Names implements kinds.Switchable.
func (k *adaptedKind) Names() []string {
	return []string{k.adapter, k.target.Resource, strings.ToLower(k.target.Kind)}
}

// Switch implements kinds.Switchable.
func (k *adaptedKind) Switch() *kinds.FieldSwitch { return k.how }

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

// read evaluates the expressions on an object. An expression that fails counts as false, and the message contains the
// error. An object without a status, which its own controller has not seen yet, is evaluated with an empty status.
func (q adapterQuestions) read(u *unstructured.Unstructured) kinds.ObservedActivity {
	object := u.Object
	if object["status"] == nil {
		object = maps.Clone(object)
		object["status"] = map[string]any{}
	}
	var rest kinds.ObservedActivity
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
