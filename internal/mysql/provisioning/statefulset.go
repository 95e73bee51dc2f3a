// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// buildStatefulSet makes the Pods, all at once, and replaces none by itself: which Pod is next, and when, only Decide says.
// With a partition it could not be the primary that comes last, and a rollout would go on without a manager.
func buildStatefulSet(c *mocov1beta2.MySQLCluster, config string) (*unstructured.Unstructured, error) {
	spec, err := buildPodSpec(c, config)
	if err != nil {
		return nil, err
	}
	claims, err := buildVolumeClaims(c)
	if err != nil {
		return nil, err
	}
	replicas := int64(c.Spec.Replicas)
	if c.Spec.Offline {
		replicas = 0
	}
	labels := toJSONMap(c.Spec.PodTemplate.Labels)
	maps.Copy(labels, toJSONMap(SelectorLabels(c)))
	meta := map[string]any{"labels": labels}
	if a := c.Spec.PodTemplate.Annotations; len(a) > 0 {
		meta["annotations"] = toJSONMap(a)
	}
	return newObject(c, "apps/v1", "StatefulSet", c.ChildName(), map[string]any{"spec": map[string]any{
		"replicas": replicas, "serviceName": c.ChildName(), "podManagementPolicy": "Parallel",
		"updateStrategy":       map[string]any{"type": "OnDelete"},
		"selector":             map[string]any{"matchLabels": toJSONMap(SelectorLabels(c))},
		"template":             map[string]any{"metadata": meta, "spec": spec},
		"volumeClaimTemplates": claims,
	}}), nil
}

// buildVolumeClaims are collected with the cluster, not with the StatefulSet.
func buildVolumeClaims(c *mocov1beta2.MySQLCluster) ([]any, error) {
	var list []any
	for _, t := range c.Spec.VolumeClaimTemplates {
		spec, err := toJSONFields(&t.Spec)
		if err != nil {
			return nil, fmt.Errorf("read spec.volumeClaimTemplates: %w", err)
		}
		claim := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
		}}
		claim.SetName(t.Name)
		claim.SetLabels(SelectorLabels(c))
		claim.SetOwnerReferences([]metav1.OwnerReference{OwnerReference(c)})
		list = append(list, withUserMetadata(claim, t.ObjectMeta).Object)
	}
	return list, nil
}
