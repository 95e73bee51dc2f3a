// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// VolumeGrowth is the new size of all claims that were created from one template.
type VolumeGrowth struct {
	// Template is the name of the template, which is the claim's name without the Pod's name.
	Template string
	Size     resource.Quantity
}

// ClaimName returns the name of the Pod's claim.
func (g VolumeGrowth) ClaimName(pod string) string { return g.Template + "-" + pod }

// ClaimLabels holds the labels and annotations of all claims that were created from one template.
type ClaimLabels struct {
	Template            string
	Labels, Annotations map[string]string
}

// ClaimChange is a change to the claim templates of a StatefulSet. It requires a new StatefulSet, because claim
// templates are immutable.
type ClaimChange struct {
	// Growing lists the volumes to grow.
	Growing []VolumeGrowth
	// Relabelled lists the templates whose labels or annotations change.
	Relabelled []ClaimLabels
	// Shrunk lists the templates with a smaller size. Their existing claims keep their sizes, because no volume can
	// shrink. A claim that is created later has the smaller size.
	Shrunk []string
}

// IsPossible reports whether there is a change that a new StatefulSet can apply.
func (c ClaimChange) IsPossible() bool { return len(c.Growing)+len(c.Relabelled)+len(c.Shrunk) > 0 }

// CompareClaims returns the change from the live to the desired claim templates, if they differ only in sizes, labels
// and annotations. Users have to handle any other difference.
func CompareClaims(live *appsv1.StatefulSet, desired *unstructured.Unstructured) ClaimChange {
	if live == nil || desired == nil || !live.DeletionTimestamp.IsZero() {
		return ClaimChange{}
	}
	wanted := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, wanted); err != nil {
		return ClaimChange{} // The API server reports the error when the StatefulSet is applied.
	}
	var change ClaimChange
	isPossible := slices.EqualFunc(live.Spec.VolumeClaimTemplates, wanted.Spec.VolumeClaimTemplates, func(is, should corev1.PersistentVolumeClaim) bool {
		size, wantedSize := is.Spec.Resources.Requests[corev1.ResourceStorage], should.Spec.Resources.Requests[corev1.ResourceStorage]
		switch order := wantedSize.Cmp(size); {
		case order > 0:
			change.Growing = append(change.Growing, VolumeGrowth{Template: should.Name, Size: wantedSize})
		case order < 0:
			change.Shrunk = append(change.Shrunk, should.Name)
		}
		if !maps.Equal(is.Labels, should.Labels) || !maps.Equal(is.Annotations, should.Annotations) {
			change.Relabelled = append(change.Relabelled, ClaimLabels{should.Name, should.Labels, should.Annotations})
		}
		sameClass := should.Spec.StorageClassName == nil || is.Spec.StorageClassName != nil && *is.Spec.StorageClassName == *should.Spec.StorageClassName
		return is.Name == should.Name && sameClass && slices.Equal(is.Spec.AccessModes, should.Spec.AccessModes)
	})
	if !isPossible {
		return ClaimChange{}
	}
	return change
}
