// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// statefulSet makes the Pods, all at once, and replaces none by itself: which Pod is next, and when, only Decide says.
// With a partition it could not be the primary that comes last, and a rollout would go on without a manager.
func statefulSet(c *mocov1beta2.MySQLCluster, config string) (*unstructured.Unstructured, error) {
	spec, err := podSpec(c, config)
	if err != nil {
		return nil, err
	}
	claims, err := volumeClaims(c)
	if err != nil {
		return nil, err
	}
	replicas := int64(c.Spec.Replicas)
	if c.Spec.Offline {
		replicas = 0
	}
	labels := plain(c.Spec.PodTemplate.Labels)
	maps.Copy(labels, plain(Labels(c)))
	meta := map[string]any{"labels": labels}
	if a := c.Spec.PodTemplate.Annotations; len(a) > 0 {
		meta["annotations"] = plain(a)
	}
	return object(c, "apps/v1", "StatefulSet", c.ChildName(), map[string]any{"spec": map[string]any{
		"replicas": replicas, "serviceName": c.ChildName(), "podManagementPolicy": "Parallel",
		"updateStrategy":       map[string]any{"type": "OnDelete"},
		"selector":             map[string]any{"matchLabels": plain(Labels(c))},
		"template":             map[string]any{"metadata": meta, "spec": spec},
		"volumeClaimTemplates": claims,
	}}), nil
}

// volumeClaims are collected with the cluster, not with the StatefulSet.
func volumeClaims(c *mocov1beta2.MySQLCluster) ([]any, error) {
	var list []any
	for _, t := range c.Spec.VolumeClaimTemplates {
		spec, err := fields(&t.Spec)
		if err != nil {
			return nil, fmt.Errorf("read spec.volumeClaimTemplates: %w", err)
		}
		claim := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec,
		}}
		claim.SetName(t.Name)
		claim.SetLabels(Labels(c))
		claim.SetOwnerReferences([]metav1.OwnerReference{Owner(c)})
		list = append(list, tagged(claim, t.ObjectMeta).Object)
	}
	return list, nil
}
