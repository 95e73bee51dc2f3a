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

// VolumeGrowth is a size that the claims of all Pods get which were made from one template.
type VolumeGrowth struct {
	// Template is the name of the claims, without that of the Pod.
	Template string
	Size     resource.Quantity
}

// ClaimName is the name of the claim of a Pod.
func (g VolumeGrowth) ClaimName(pod string) string { return g.Template + "-" + pod }

// ListVolumeGrowth returns what grows if the only difference between the templates of claims is that some are larger. No StatefulSet lets
// its templates be changed, so that it has to be made anew; any other difference is for people to judge, and those that shrink are named.
func ListVolumeGrowth(live *appsv1.StatefulSet, desired *unstructured.Unstructured) (growing []VolumeGrowth, shrinking string) {
	if live == nil || desired == nil || !live.DeletionTimestamp.IsZero() {
		return nil, ""
	}
	wanted := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, wanted); err != nil {
		return nil, "" // The API server says what is wrong with it.
	}
	hasOnlySizes := slices.EqualFunc(live.Spec.VolumeClaimTemplates, wanted.Spec.VolumeClaimTemplates, func(is, should corev1.PersistentVolumeClaim) bool {
		size, more := is.Spec.Resources.Requests[corev1.ResourceStorage], should.Spec.Resources.Requests[corev1.ResourceStorage]
		switch order := more.Cmp(size); {
		case order > 0:
			growing = append(growing, VolumeGrowth{Template: should.Name, Size: more})
		case order < 0 && is.Name == should.Name:
			shrinking = fmt.Sprintf("no volume can shrink: %s has %s, and spec.volumeClaimTemplates asks for %s; take the size back, or restore "+
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
