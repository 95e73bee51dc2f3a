// SPDX-License-Identifier: Apache-2.0

// Package orgspace decides what happens to the namespace of a CFOrg or a CFSpace. It is pure; package controller beside it
// observes and acts.
package orgspace

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Observed is an org or a space with its namespace.
type Observed struct {
	Owner metav1.Object
	// Labels mark the namespace as the owner's.
	Labels map[string]string
	// Namespace is the one of the owner's name; nil if there is none.
	Namespace *corev1.Namespace
}

// Plan is what to do and what to report.
type Plan struct {
	CreateNamespace bool
	// LookAgain says that the namespace has to go before anything else can happen.
	LookAgain bool
	// Ready is nil if there is nothing to report yet.
	Ready *decision.Condition
	Why   string
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	name := o.Owner.GetName()
	switch {
	case o.Namespace == nil:
		return Plan{CreateNamespace: true, Why: "make the namespace"}
	case !OwnsNamespace(o) || !o.Namespace.DeletionTimestamp.IsZero():
		return Plan{LookAgain: true, Why: "name taken", Ready: new(decision.False(korifiv1alpha1.NameTakenReason,
			"expected the namespace "+name+" to be free, found one that is another's or is being deleted; delete it, or choose another name"))}
	default:
		return Plan{Why: "as it should be", Ready: new(decision.True(korifiv1alpha1.NamespaceReadyReason, "the namespace "+name+" is there"))}
	}
}

// OwnsNamespace reports whether the namespace is the owner's. One without the owner's labels is another's: it is left alone,
// also when the owner is deleted.
func OwnsNamespace(o Observed) bool {
	if o.Namespace == nil {
		return false
	}
	for key, value := range o.Labels {
		if o.Namespace.Labels[key] != value {
			return false
		}
	}
	return true
}
