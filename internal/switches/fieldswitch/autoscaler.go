// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RefuseAutoscaled returns the reason why an object must not be scaled to zero, given all HorizontalPodAutoscalers of
// its namespace, or "" if it can be scaled to zero. An autoscaler with minReplicas of at least one does not act while
// the object has no replicas, and resumes when the object has replicas again.
func RefuseAutoscaled(obj *unstructured.Unstructured, all []autoscalingv2.HorizontalPodAutoscaler) string {
	var refusals []string
	for i := range all {
		if a := &all[i]; isScaledBy(obj, a) {
			refusals = append(refusals, refuseAutoscaler(a))
		}
	}
	// The cache returns objects in any order, but the reason must be stable.
	return slices.Max(append(refusals, ""))
}

func isScaledBy(obj *unstructured.Unstructured, a *autoscalingv2.HorizontalPodAutoscaler) bool {
	target := a.Spec.ScaleTargetRef
	group, _, _ := strings.Cut(target.APIVersion, "/")
	return target.Kind == obj.GetKind() && target.Name == obj.GetName() && group == obj.GroupVersionKind().Group
}

func refuseAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) string {
	if owner := metav1.GetControllerOf(a); owner != nil && owner.Kind == "ScaledObject" {
		return fmt.Sprintf("expected no autoscaler that scales from zero, found the ScaledObject %s of KEDA; stop the ScaledObject instead (see examples/stopadapters)", owner.Name)
	}
	if a.Spec.MinReplicas != nil && *a.Spec.MinReplicas == 0 {
		return fmt.Sprintf("expected no autoscaler that scales from zero, found the HorizontalPodAutoscaler %s with minReplicas 0; set minReplicas to 1", a.Name)
	}
	return ""
}
