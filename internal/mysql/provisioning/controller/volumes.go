// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// growVolumes raises the requests of the claims, and then deletes the StatefulSet, whose claim templates are
// immutable. Its Pods stay, and the StatefulSet that the next pass applies adopts them, so no server is restarted.
func (c Controller) growVolumes(ctx context.Context, seen observation, growing []provisioning.VolumeGrowth) error {
	for _, g := range growing {
		for i := range seen.Cluster.InstanceCount() {
			if err := c.growClaim(ctx, seen, g, i); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	err := c.client.Delete(ctx, seen.StatefulSet, client.Preconditions{UID: new(seen.StatefulSet.UID)}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if client.IgnoreNotFound(err) != nil && !k8serrors.IsConflict(err) {
		return newFailure(nil, fmt.Errorf("delete the StatefulSet without its Pods: %w", err))
	}
	return reconcile.ErrStale // The next pass applies the new StatefulSet.
}

func (c Controller) growClaim(ctx context.Context, seen observation, g provisioning.VolumeGrowth, i int) error {
	name := g.ClaimName(seen.Cluster.PodName(i))
	claim := &corev1.PersistentVolumeClaim{}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := c.live.Get(ctx, namespacedName(seen.Cluster, name), claim); k8serrors.IsNotFound(err) {
		return nil // A Pod without a claim will get one of the new size.
	} else if err != nil {
		return newFailure(nil, fmt.Errorf("read the PersistentVolumeClaim %s: %w", name, err))
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(g.Size) >= 0 {
		return nil
	}
	after := claim.DeepCopy()
	after.Spec.Resources.Requests[corev1.ResourceStorage] = g.Size
	err := reconcile.PatchObserved(ctx, c.client, claim, after, Name)
	if k8serrors.IsForbidden(err) || k8serrors.IsInvalid(err) {
		return newFailure([]string{fmt.Sprintf("the API server refuses to grow the PersistentVolumeClaim %s to %s: %v; "+
			"use a StorageClass with allowVolumeExpansion: true, or revert the size in spec.volumeClaimTemplates", name, g.Size.String(), err)}, nil)
	}
	return err
}
