// SPDX-License-Identifier: Apache-2.0

// Package orgspace decides the state of the namespace of a CFOrg or a CFSpace. It is pure; package controller observes
// and acts.
package orgspace

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// podSecurityLabel is the label with the Pod Security Standard that Kubernetes enforces.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// Observed is an org or a space with its namespace.
type Observed struct {
	Owner metav1.Object
	// Labels are the labels of a namespace that belongs to Owner.
	Labels map[string]string
	// Namespace is the namespace with the owner's name. It is nil if it does not exist.
	Namespace *corev1.Namespace
	// LacksPolicy is true if Pods must only be reachable from their own namespace, but Torpor's NetworkPolicy is
	// missing.
	LacksPolicy bool
}

// Plan is the next action and the condition to report.
type Plan struct {
	CreateNamespace bool
	// AddLabels holds the labels that the namespace lacks.
	AddLabels map[string]string
	// CreatePolicy is true if the NetworkPolicy that rejects traffic from other namespaces must be created.
	CreatePolicy bool
	// LookAgain is true if the existing namespace must be deleted before another action is possible.
	LookAgain bool
	// Ready is nil if there is no condition to report yet.
	Ready *decision.Condition
	Why   string
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	name := o.Owner.GetName()
	switch {
	case o.Namespace == nil:
		return Plan{CreateNamespace: true, Why: "create the namespace"}
	case !OwnsNamespace(o) || !o.Namespace.DeletionTimestamp.IsZero():
		return Plan{LookAgain: true, Why: "name taken", Ready: new(decision.False(korifiv1alpha1.NameTakenReason,
			"expected the namespace "+name+" to be unused, found one that has another owner or is being deleted; delete that namespace, or choose another name"))}
	default:
		return Plan{AddLabels: missingLabels(o.Namespace), CreatePolicy: o.LacksPolicy, Why: "nothing to change", Ready: new(decision.True(korifiv1alpha1.NamespaceReadyReason, "the namespace "+name+" exists"))}
	}
}

// PodSecurityLabels returns the Pod security labels of a new namespace. App Pods satisfy the restricted level, and the
// label enforces it for all other Pods in the namespace. If an administrator has set another level, it is kept.
func PodSecurityLabels() map[string]string {
	return map[string]string{podSecurityLabel: "restricted"}
}

func missingLabels(namespace *corev1.Namespace) map[string]string {
	missing := PodSecurityLabels()
	maps.DeleteFunc(missing, func(key, _ string) bool { _, found := namespace.Labels[key]; return found })
	return missing
}

// OwnsNamespace reports whether the namespace belongs to the owner, which means that it has the owner's labels. A
// namespace of another owner is not changed, even when the CFOrg or CFSpace is deleted.
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
