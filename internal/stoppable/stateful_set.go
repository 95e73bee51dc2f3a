// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func statefulSetKind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSet")
}

func statefulSets() Kind {
	return NewSwitched(statefulSetKind(), replicasSwitch(), func(u *unstructured.Unstructured) ObservedActivity {
		return readReplicas(u, "readyReplicas")
	})
}
