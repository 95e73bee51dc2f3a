// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// replaceSet changes the PersistentVolumeClaims, and then deletes the StatefulSet, whose claim templates are immutable.
// The Pods are orphaned. The next pass creates a StatefulSet that adopts the Pods, so no server is restarted.
func (c Controller) replaceSet(ctx context.Context, seen observation, change provisioning.ClaimChange) error {
	grown := false
	for i := range seen.Cluster.InstanceCount() {
		pod := seen.Cluster.PodName(i)
		hasGrown, err := c.growClaims(ctx, seen, pod, change.Growing)
		if err != nil {
			c.Metrics.resizeErrors.WithLabelValues(seen.Cluster.Name, seen.Cluster.Namespace).Inc()
			return err
		}
		if err := c.labelClaims(ctx, seen, pod, change.Relabelled); err != nil {
			return err
		}
		grown = grown || hasGrown
	}
	// As in MOCO, the growth of all claims of a cluster counts once.
	if grown {
		c.Metrics.resized.WithLabelValues(seen.Cluster.Name, seen.Cluster.Namespace).Inc()
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	observed := client.Preconditions{UID: new(seen.StatefulSet.UID), ResourceVersion: new(seen.StatefulSet.ResourceVersion)}
	err := c.client.Delete(ctx, seen.StatefulSet, observed, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	// A conflict means that the cache is stale. Usually an earlier pass has already deleted and counted the StatefulSet.
	if k8serrors.IsNotFound(err) || k8serrors.IsConflict(err) {
		return reconcile.ErrStale
	}
	countResult(c.Metrics.setsReplaced, c.Metrics.setReplaceErrors, seen.Cluster, err)
	if err != nil {
		return newFailure(nil, fmt.Errorf("delete the StatefulSet without its Pods: %w", err))
	}
	return reconcile.ErrStale // The next pass applies the new StatefulSet.
}

// growClaims grows the PersistentVolumeClaims of one Pod, and reports whether it changed any of them.
func (c Controller) growClaims(ctx context.Context, seen observation, pod string, growing []provisioning.VolumeGrowth) (bool, error) {
	hasGrown := false
	for _, g := range growing {
		isSmaller := false
		err := c.changeClaim(ctx, seen, g.ClaimName(pod), "the size "+g.Size.String(), func(claim *corev1.PersistentVolumeClaim) {
			if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.Cmp(g.Size) < 0 {
				isSmaller = true
				claim.Spec.Resources.Requests[corev1.ResourceStorage] = g.Size
			}
		})
		if err != nil {
			return hasGrown, err
		}
		hasGrown = hasGrown || isSmaller
	}
	return hasGrown, nil
}

// labelClaims adds labels and annotations to the PersistentVolumeClaims of one Pod.
func (c Controller) labelClaims(ctx context.Context, seen observation, pod string, relabelled []provisioning.ClaimLabels) error {
	for _, l := range relabelled {
		err := c.changeClaim(ctx, seen, l.Template+"-"+pod, "changed labels", func(claim *corev1.PersistentVolumeClaim) {
			for name, value := range l.Labels {
				metav1.SetMetaDataLabel(&claim.ObjectMeta, name, value)
			}
			for name, value := range l.Annotations {
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, name, value)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// changeClaim patches a PersistentVolumeClaim, if it exists and change modifies it. what describes the change in an
// error.
func (c Controller) changeClaim(ctx context.Context, seen observation, name, what string, change func(*corev1.PersistentVolumeClaim)) error {
	claim := &corev1.PersistentVolumeClaim{}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := c.live.Get(ctx, namespacedName(seen.Cluster, name), claim); k8serrors.IsNotFound(err) {
		return nil // A Pod without a claim will get one from the new template.
	} else if err != nil {
		return newFailure(nil, fmt.Errorf("read the PersistentVolumeClaim %s: %w", name, err))
	}
	after := claim.DeepCopy()
	change(after)
	if equality.Semantic.DeepEqual(claim, after) {
		return nil
	}
	err := reconcile.PatchObserved(ctx, c.client, claim, after, Name)
	if k8serrors.IsForbidden(err) || k8serrors.IsInvalid(err) {
		return newFailure([]string{fmt.Sprintf("the API server refuses the PersistentVolumeClaim %s with %s: %v; "+
			"for a larger volume, use a StorageClass with allowVolumeExpansion: true; or revert spec.volumeClaimTemplates", name, what, err)}, nil)
	}
	return err
}
