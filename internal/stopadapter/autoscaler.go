// SPDX-License-Identifier: Apache-2.0

package stopadapter

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// IsScaledBy reports whether an autoscaler is about an object.
func IsScaledBy(obj *unstructured.Unstructured, a *autoscalingv2.HorizontalPodAutoscaler) bool {
	target := a.Spec.ScaleTargetRef
	group, _, _ := strings.Cut(target.APIVersion, "/")
	return target.Kind == obj.GetKind() && target.Name == obj.GetName() && group == obj.GroupVersionKind().Group
}

// DescribeAutoscaler says why what an autoscaler scales cannot be scaled to zero by anybody else; empty if it can. An autoscaler with one
// replica at least rests while there is none, and goes on when they are back.
func DescribeAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if owner := metav1.GetControllerOf(a); owner != nil && owner.Kind == "ScaledObject" {
		return fmt.Sprintf("expected an object that nobody else scales from zero, found the ScaledObject %s of KEDA; stop that, as examples/stopadapters has it", owner.Name)
	}
	if a.Spec.MinReplicas != nil && *a.Spec.MinReplicas == 0 {
		return fmt.Sprintf("expected an object that nobody else scales from zero, found the HorizontalPodAutoscaler %s with minReplicas 0; set it to 1", a.Name)
	}
	return ""
}
