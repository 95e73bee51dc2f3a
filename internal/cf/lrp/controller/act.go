// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
)

// act does one step. It says whether to look again, because the cache turned out to be behind.
func (c Controller) act(ctx context.Context, o lrp.Observed, p lrp.Plan) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch p.Do {
	case lrp.DoNothing:
	case lrp.AddFinalizer, lrp.RemoveFinalizer:
		again, err = c.patchFinalizer(ctx, o, p.Do)
	case lrp.CreateStatefulSet:
		err = c.client.Create(ctx, lrp.BuildStatefulSet(o.LRP), client.FieldOwner(Name))
	case lrp.ScaleStatefulSet:
		after := o.StatefulSet.DeepCopy()
		after.Spec.Replicas = new(p.Replicas)
		err = c.client.Patch(ctx, after, client.MergeFromWithOptions(o.StatefulSet, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	case lrp.CreateBudget:
		err = c.client.Create(ctx, lrp.BuildDisruptionBudget(o.LRP), client.FieldOwner(Name))
	case lrp.DeleteBudget:
		err = c.deleteObserved(ctx, o.Budget)
	case lrp.DeleteStatefulSet:
		again, err = c.deleteAndRelease(ctx, o)
	case lrp.DeletePods:
		again, err = c.deleteOrphanedPods(ctx, o)
	}
	if k8serrors.IsConflict(err) || k8serrors.IsAlreadyExists(err) || k8serrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.Why, err)
	}
	return again, nil
}

// patchFinalizer adds or takes away the finalizer; it is taken away only if the API server too knows no Pod.
func (c Controller) patchFinalizer(ctx context.Context, o lrp.Observed, do lrp.Action) (again bool, err error) {
	after := &eiriniv1.LRP{ObjectMeta: *o.LRP.ObjectMeta.DeepCopy()}
	if do == lrp.AddFinalizer {
		controllerutil.AddFinalizer(after, eiriniv1.LRPFinalizer)
		return false, c.patchMetadata(ctx, o.LRP, after)
	}
	pods, err := c.listRemainingPods(ctx, o.LRP)
	if err != nil || len(pods) > 0 {
		return true, err
	}
	controllerutil.RemoveFinalizer(after, eiriniv1.LRPFinalizer)
	return false, c.patchMetadata(ctx, o.LRP, after)
}

// patchMetadata writes what changed beside the status. The LRP gets the version that this leaves, so that the next pass waits for it.
func (c Controller) patchMetadata(ctx context.Context, obj, after *eiriniv1.LRP) error {
	before := &eiriniv1.LRP{ObjectMeta: obj.ObjectMeta}
	if err := c.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name)); err != nil {
		return err
	}
	obj.ResourceVersion = after.ResourceVersion
	return nil
}

// deleteAndRelease deletes the StatefulSet of an LRP once no Pod is left, and lets go of the LRP: it is the only one whose Pods the
// StatefulSet controller could still make, and that makes none. Whoever ends between the two finds no StatefulSet next time.
func (c Controller) deleteAndRelease(ctx context.Context, o lrp.Observed) (again bool, err error) {
	pods, err := c.listRemainingPods(ctx, o.LRP)
	if err != nil || len(pods) > 0 {
		return true, err
	}
	if err := client.IgnoreNotFound(c.deleteObserved(ctx, o.StatefulSet)); err != nil {
		return false, err
	}
	after := &eiriniv1.LRP{ObjectMeta: *o.LRP.ObjectMeta.DeepCopy()}
	controllerutil.RemoveFinalizer(after, eiriniv1.LRPFinalizer)
	return false, c.patchMetadata(ctx, o.LRP, after)
}

// deleteOrphanedPods deletes Pods that no StatefulSet owns any more.
func (c Controller) deleteOrphanedPods(ctx context.Context, o lrp.Observed) (again bool, err error) {
	pods, err := c.listRemainingPods(ctx, o.LRP)
	if err != nil {
		return false, err
	}
	var all []error
	for i := range pods {
		if pods[i].DeletionTimestamp.IsZero() {
			all = append(all, client.IgnoreNotFound(c.deleteObserved(ctx, &pods[i])))
		}
	}
	return len(pods) == 0, errors.Join(all...)
}

// deleteObserved deletes the object that was seen, and no other of its name.
func (c Controller) deleteObserved(ctx context.Context, o client.Object) error {
	return c.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
}
