// SPDX-License-Identifier: Apache-2.0

// Package orgspace decides what happens to the namespace of a CFOrg or a CFSpace. It is pure; package controller beside it
// observes and acts.
package orgspace

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// Observed is an org or a space with its namespace.
type Observed struct {
	Owner metav1.Object
	// Finalizer keeps the owner until its namespace is gone; Labels mark the namespace as the owner's.
	Finalizer string
	Labels    map[string]string
	// Namespace is the one of the owner's name; nil if there is none.
	Namespace *corev1.Namespace
}

// Action is what is done to the owner or its namespace.
type Action int

// The actions.
const (
	DoNothing Action = iota
	AddFinalizer
	CreateNamespace
	DeleteNamespace
	RemoveFinalizer
)

// Plan is what to do and what to report.
type Plan struct {
	Do Action
	// Ready is nil while the owner changes hands: nothing is reported of it then.
	Ready *metav1.Condition
	// WaitsForNamespace asks for another look, because the namespace has to go before anything else can happen.
	WaitsForNamespace bool
	Why               string
}

// Decide is total: every Observed has exactly one Plan. A namespace without the owner's labels is another's, and is left alone
// even if the owner is deleted.
func Decide(o Observed) Plan {
	deleting, kept := !o.Owner.GetDeletionTimestamp().IsZero(), slices.Contains(o.Owner.GetFinalizers(), o.Finalizer)
	owned := o.Namespace != nil && hasLabels(o.Namespace.Labels, o.Labels)
	switch {
	case deleting && !kept:
		return Plan{Why: "it is being deleted"}
	case deleting && owned && o.Namespace.DeletionTimestamp.IsZero():
		return Plan{Do: DeleteNamespace, WaitsForNamespace: true, Why: "delete the namespace"}
	case deleting && owned:
		return Plan{WaitsForNamespace: true, Why: "delete the namespace"}
	case deleting:
		return Plan{Do: RemoveFinalizer, Why: "the namespace is gone"}
	case !kept:
		return Plan{Do: AddFinalizer, Why: "keep it until its namespace is gone"}
	case o.Namespace == nil:
		return Plan{Do: CreateNamespace, Why: "make the namespace"}
	case !owned || !o.Namespace.DeletionTimestamp.IsZero():
		return Plan{WaitsForNamespace: true, Why: "name taken", Ready: &metav1.Condition{
			Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: korifiv1alpha1.NameTakenReason,
			Message: "expected the namespace " + o.Owner.GetName() + " to be free, found one that is another's or is being deleted; delete it, or choose another name",
		}}
	default:
		return Plan{Why: "as it should be", Ready: &metav1.Condition{
			Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.NamespaceReadyReason,
			Message: "the namespace " + o.Owner.GetName() + " is there",
		}}
	}
}

func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}
