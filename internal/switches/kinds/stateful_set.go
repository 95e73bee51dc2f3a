// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;patch

// statefulSets is the kind StatefulSet. Its objects are stopped by scaling them to zero.
type statefulSets struct{}

// GVK implements Switchable.
func (statefulSets) GVK() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSet")
}

// Names implements Switchable.
func (statefulSets) Names() []string { return []string{"statefulset", "statefulsets", "sts"} }

// Switch implements Switchable.
func (statefulSets) Switch() *FieldSwitch {
	how := replicasSwitch("readyReplicas")
	how.IsLate = true
	return how
}
