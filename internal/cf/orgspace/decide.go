// SPDX-License-Identifier: Apache-2.0

// Package orgspace decides what happens to the namespace of a CFOrg or a CFSpace. It is pure; its package
// controller observes and acts.
package orgspace

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// podSecurityLabel holds the level that the Pod Security admission of Kubernetes enforces.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// Observed is an org or a space with its namespace.
type Observed struct {
	Owner metav1.Object
	// Labels mark the namespace as the owner's.
	Labels map[string]string
	// Namespace has the owner's name; nil if it does not exist.
	Namespace *corev1.Namespace
	// LacksPolicy is true if Pods must be reachable from within the namespace only, and no policy ensures that.
	LacksPolicy bool
}

// Plan is the next action and the condition to report.
type Plan struct {
	CreateNamespace bool
	// AddLabels are labels that the owner's namespace lacks.
	AddLabels map[string]string
	// CreatePolicy keeps Pods of other namespaces out.
	CreatePolicy bool
	// LookAgain reports that the namespace has to be gone before anything else can happen.
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
		return Plan{CreateNamespace: true, Why: "create the namespace"}
	case !OwnsNamespace(o) || !o.Namespace.DeletionTimestamp.IsZero():
		return Plan{LookAgain: true, Why: "name taken", Ready: new(decision.False(korifiv1alpha1.NameTakenReason,
			"expected the namespace "+name+" to be free, found one that has another owner or is being deleted; delete it, or choose another name"))}
	default:
		return Plan{AddLabels: missingLabels(o.Namespace), CreatePolicy: o.LacksPolicy, Why: "as it should be", Ready: new(decision.True(korifiv1alpha1.NamespaceReadyReason, "the namespace "+name+" exists"))}
	}
}

// PodSecurityLabels returns the labels of a new namespace. Pods of apps are as restricted as the level
// demands; the label enforces it for everything else in the namespace. A level that an administrator has
// chosen stays.
func PodSecurityLabels() map[string]string {
	return map[string]string{podSecurityLabel: "restricted"}
}

func missingLabels(namespace *corev1.Namespace) map[string]string {
	missing := PodSecurityLabels()
	maps.DeleteFunc(missing, func(key, _ string) bool { _, found := namespace.Labels[key]; return found })
	return missing
}

// OwnsNamespace reports whether the namespace is the owner's. A namespace without the owner's labels has
// another owner: it is left alone, also when the CFOrg or CFSpace is deleted.
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
