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
	"github.com/torpor-dev/torpor/internal/restart"
)

// act does one step. It says whether to look again, because the cache turned out to be behind.
func (c Controller) act(ctx context.Context, o observation, p plan) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch p.do {
	case nothing:
	case addFinalizer, removeFinalizer:
		again, err = c.finalizer(ctx, o, p.do)
	case createSet:
		err = c.client.Create(ctx, restart.BuildStatefulSet(o.lrp), client.FieldOwner(Name))
	case scaleSet:
		after := o.set.DeepCopy()
		after.Spec.Replicas = new(p.replicas)
		err = c.client.Patch(ctx, after, client.MergeFromWithOptions(o.set, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	case createBudget:
		err = c.client.Create(ctx, restart.BuildDisruptionBudget(o.lrp), client.FieldOwner(Name))
	case deleteBudget:
		err = c.remove(ctx, o.budget)
	case deleteSet:
		again, err = c.end(ctx, o)
	case deletePods:
		again, err = c.clear(ctx, o)
	}
	if k8serrors.IsConflict(err) || k8serrors.IsAlreadyExists(err) || k8serrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.why, err)
	}
	return again, nil
}

// finalizer adds or takes away the finalizer; it is taken away only if the API server too knows no Pod.
func (c Controller) finalizer(ctx context.Context, o observation, do step) (again bool, err error) {
	after := &eiriniv1.LRP{ObjectMeta: *o.lrp.ObjectMeta.DeepCopy()}
	if do == addFinalizer {
		controllerutil.AddFinalizer(after, eiriniv1.LRPFinalizer)
		return false, c.save(ctx, o.lrp, after)
	}
	pods, err := c.left(ctx, o.lrp)
	if err != nil || len(pods) > 0 {
		return true, err
	}
	controllerutil.RemoveFinalizer(after, eiriniv1.LRPFinalizer)
	return false, c.save(ctx, o.lrp, after)
}

// save writes what changed beside the status. The LRP gets the version that this leaves, so that the next pass waits for it.
func (c Controller) save(ctx context.Context, lrp, after *eiriniv1.LRP) error {
	before := &eiriniv1.LRP{ObjectMeta: lrp.ObjectMeta}
	if err := c.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name)); err != nil {
		return err
	}
	lrp.ResourceVersion = after.ResourceVersion
	return nil
}

// end deletes the StatefulSet of an LRP once no Pod is left, and lets go of the LRP: it is the only one whose Pods the
// StatefulSet controller could still make, and that makes none. Whoever ends between the two finds no StatefulSet next time.
func (c Controller) end(ctx context.Context, o observation) (again bool, err error) {
	pods, err := c.left(ctx, o.lrp)
	if err != nil || len(pods) > 0 {
		return true, err
	}
	if err := client.IgnoreNotFound(c.remove(ctx, o.set)); err != nil {
		return false, err
	}
	after := &eiriniv1.LRP{ObjectMeta: *o.lrp.ObjectMeta.DeepCopy()}
	controllerutil.RemoveFinalizer(after, eiriniv1.LRPFinalizer)
	return false, c.save(ctx, o.lrp, after)
}

// clear deletes Pods that no StatefulSet owns any more.
func (c Controller) clear(ctx context.Context, o observation) (again bool, err error) {
	pods, err := c.left(ctx, o.lrp)
	if err != nil {
		return false, err
	}
	var all []error
	for i := range pods {
		if pods[i].DeletionTimestamp.IsZero() {
			all = append(all, client.IgnoreNotFound(c.remove(ctx, &pods[i])))
		}
	}
	return len(pods) == 0, errors.Join(all...)
}

// remove deletes the object that was seen, and no other of its name.
func (c Controller) remove(ctx context.Context, o client.Object) error {
	return c.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
}
