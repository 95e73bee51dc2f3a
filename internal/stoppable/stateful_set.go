// SPDX-License-Identifier: Apache-2.0

package stoppable

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func statefulSets() Kind {
	return NewSwitched(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), replicasSwitch(), func(u *unstructured.Unstructured) ObservedRest {
		return readReplicas(u, "readyReplicas")
	})
}
