// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEveryAutoscalerOfAnObjectIsJudged lists two autoscalers in both orders, because a cache lists in any order.
func TestEveryAutoscalerOfAnObjectIsJudged(t *testing.T) {
	build := func(name, target string, minReplicas int32) autoscalingv2.HorizontalPodAutoscaler {
		return autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MinReplicas:    &minReplicas,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			},
		}
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"}}}
	for name, row := range map[string]struct {
		first, second autoscalingv2.HorizontalPodAutoscaler
		names         string
	}{
		"two autoscalers with minReplicas above zero: the stop is allowed":                                          {build("a", "web", 1), build("b", "web", 2), ""},
		"an autoscaler with minReplicas 0 for the object, and one for another object: refused because of the first": {build("a", "web", 0), build("b", "other", 0), "a with minReplicas 0"},
		"an autoscaler with minReplicas 0, and one with minReplicas 1: refused because of the first":                {build("a", "web", 0), build("b", "web", 1), "a with minReplicas 0"},
		"two autoscalers with minReplicas 0: refused because of the one that sorts last by name":                    {build("a", "web", 0), build("b", "web", 0), "b with minReplicas 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, all := range [][]autoscalingv2.HorizontalPodAutoscaler{{row.first, row.second}, {row.second, row.first}} {
				if found := RefuseAutoscaled(obj, all); !strings.Contains(found, row.names) || (found == "") != (row.names == "") {
					t.Errorf("expected a refusal that names %q, found %q", row.names, found)
				}
			}
		})
	}
}
