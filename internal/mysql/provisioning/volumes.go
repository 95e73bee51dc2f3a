// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// VolumeGrowth is the new size of the claims of all Pods that were made from one template.
type VolumeGrowth struct {
	// Template is the name of the claims without the Pod's name.
	Template string
	Size     resource.Quantity
}

// ClaimName returns the name of a Pod's claim.
func (g VolumeGrowth) ClaimName(pod string) string { return g.Template + "-" + pod }

// ListVolumeGrowth returns the volumes to grow if larger sizes are the only difference between the claim templates.
// The templates of a StatefulSet are immutable, so it must be replaced. Any other difference is left to the user,
// and shrinking volumes are named.
func ListVolumeGrowth(live *appsv1.StatefulSet, desired *unstructured.Unstructured) (growing []VolumeGrowth, shrinking string) {
	if live == nil || desired == nil || !live.DeletionTimestamp.IsZero() {
		return nil, ""
	}
	wanted := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, wanted); err != nil {
		return nil, "" // The API server reports the error when it is applied.
	}
	hasOnlySizes := slices.EqualFunc(live.Spec.VolumeClaimTemplates, wanted.Spec.VolumeClaimTemplates, func(is, should corev1.PersistentVolumeClaim) bool {
		size, more := is.Spec.Resources.Requests[corev1.ResourceStorage], should.Spec.Resources.Requests[corev1.ResourceStorage]
		switch order := more.Cmp(size); {
		case order > 0:
			growing = append(growing, VolumeGrowth{Template: should.Name, Size: more})
		case order < 0 && is.Name == should.Name:
			shrinking = fmt.Sprintf("no volume can shrink: %s has %s, and spec.volumeClaimTemplates asks for %s; revert the size, or restore "+
				"a backup into a new MySQLCluster", is.Name, size.String(), more.String())
		}
		sameClass := should.Spec.StorageClassName == nil || is.Spec.StorageClassName != nil && *is.Spec.StorageClassName == *should.Spec.StorageClassName
		return is.Name == should.Name && sameClass && slices.Equal(is.Spec.AccessModes, should.Spec.AccessModes)
	})
	if !hasOnlySizes || shrinking != "" {
		return nil, shrinking
	}
	return growing, ""
}
