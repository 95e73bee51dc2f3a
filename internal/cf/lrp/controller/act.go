// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act executes the plan. It returns ErrStale if the cache is stale.
func (c Controller) act(ctx context.Context, seen lrp.Observed, plan lrp.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if c.hasReleased(seen.LRP) {
		return reconcile.ErrStale
	}
	var err error
	switch plan.Do {
	case lrp.DoNothing:
	case lrp.AddFinalizer:
		err = c.patchFinalizer(ctx, seen.LRP, controllerutil.AddFinalizer)
	case lrp.RemoveFinalizer:
		if err = c.requireNothingLeft(ctx, seen.LRP); err == nil {
			err = c.release(ctx, seen.LRP)
		}
	case lrp.CreateStatefulSet:
		err = c.client.Create(ctx, lrp.BuildStatefulSet(seen.LRP, c.Pods), client.FieldOwner(Name))
	case lrp.ScaleStatefulSet:
		after := seen.StatefulSet.DeepCopy()
		after.Spec.Replicas = new(plan.Replicas)
		err = reconcile.PatchObserved(ctx, c.client, seen.StatefulSet, after, Name)
	case lrp.LeaveServices:
		err = c.patchPods(ctx, plan.Pods, func(pod *corev1.Pod) *corev1.Pod {
			return lrp.LeaveServicesOf(pod, seen.LRP.Spec.ProcessType, c.Clock.Now())
		})
	case lrp.ReturnToServices:
		err = c.patchPods(ctx, plan.Pods, func(pod *corev1.Pod) *corev1.Pod {
			return lrp.ReturnToServicesOf(pod, seen.LRP.Spec.ProcessType)
		})
	case lrp.CreateBudget:
		err = c.client.Create(ctx, lrp.BuildDisruptionBudget(seen.LRP), client.FieldOwner(Name))
	case lrp.DeleteBudget:
		err = reconcile.DeleteObserved(ctx, c.client, seen.Budget)
	case lrp.DeleteStatefulSet:
		err = c.deleteAndRelease(ctx, seen)
	case lrp.DeletePods:
		err = c.deleteOrphanedPods(ctx, seen.LRP)
	}
	if k8serrors.IsAlreadyExists(err) {
		return c.explainTakenName(ctx, seen.LRP, plan.Do)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", plan.Why, err)
	}
	return nil
}

// patchPods patches Pods in parallel, because instances that terminate together should leave their Services together.
func (c Controller) patchPods(ctx context.Context, pods []*corev1.Pod, change func(*corev1.Pod) *corev1.Pod) error {
	errs := make([]error, len(pods))
	var patches sync.WaitGroup
	for i, pod := range pods {
		patches.Go(func() { errs[i] = reconcile.PatchObserved(ctx, c.client, pod, change(pod), Name) })
	}
	patches.Wait()
	return errors.Join(errs...)
}

// explainTakenName returns ErrStale if the cache is stale. Otherwise it returns an error, because an object of another
// owner has the name. The cache lacks that object because it belongs to no app.
func (c Controller) explainTakenName(ctx context.Context, obj *eiriniv1.LRP, do lrp.Action) error {
	var taken client.Object = &appsv1.StatefulSet{}
	kind := "StatefulSet"
	if do == lrp.CreateBudget {
		taken, kind = &policyv1.PodDisruptionBudget{}, "PodDisruptionBudget"
	}
	name := client.ObjectKey{Namespace: obj.Namespace, Name: revision.StatefulSetName(obj.Name)}
	if err := c.live.Get(ctx, name, taken); err != nil || metav1.IsControlledBy(taken, obj) {
		return reconcile.ErrStale
	}
	return &reconcile.RefusedError{Message: fmt.Sprintf("expected the %s %s to belong to this LRP, found another owner; delete that object", kind, name.Name)}
}

// patchFinalizer changes only the finalizer. It sets the resulting resource version on the LRP, so the next
// reconciliation waits until the cache has the change.
func (c Controller) patchFinalizer(ctx context.Context, obj *eiriniv1.LRP, change func(client.Object, string) bool) error {
	before, after := &eiriniv1.LRP{ObjectMeta: obj.ObjectMeta}, &eiriniv1.LRP{ObjectMeta: *obj.ObjectMeta.DeepCopy()}
	change(after, eiriniv1.LRPFinalizer)
	if err := reconcile.PatchObserved(ctx, c.client, before, after, Name); err != nil {
		return err
	}
	obj.ResourceVersion = after.ResourceVersion
	return nil
}

// deleteAndRelease deletes the StatefulSet of an LRP without Pods, and then removes the LRP's finalizer. Both happen in
// the same reconciliation, because no controller creates Pods for the StatefulSet any more. If the manager is killed in
// between, the next reconciliation finds no StatefulSet and only removes the finalizer.
func (c Controller) deleteAndRelease(ctx context.Context, seen lrp.Observed) error {
	if err := c.requireNoPods(ctx, seen.LRP); err != nil {
		return err
	}
	if err := reconcile.DeleteObserved(ctx, c.client, seen.StatefulSet); err != nil {
		return err
	}
	return c.release(ctx, seen.LRP)
}

// release removes the finalizer of an LRP, and records this in c.released.
func (c Controller) release(ctx context.Context, obj *eiriniv1.LRP) error {
	err := c.patchFinalizer(ctx, obj, controllerutil.RemoveFinalizer)
	if err == nil && c.released != nil {
		c.released.Add(obj.UID, struct{}{}, releasedTTL)
	}
	return err
}

// hasReleased reports whether this controller has recently removed the LRP's finalizer. The cache may show the deletion
// of the StatefulSet before that of the LRP. A reconciliation between the two would repeat requests.
func (c Controller) hasReleased(obj *eiriniv1.LRP) bool {
	if c.released == nil || obj.DeletionTimestamp.IsZero() {
		return false
	}
	_, has := c.released.Get(obj.UID)
	return has
}

// requireNothingLeft returns ErrStale if the API server has a StatefulSet or a Pod of the LRP that the cache lacks.
// Otherwise, the Pods of that StatefulSet would run next to the next revision until the garbage collector deletes the
// StatefulSet.
func (c Controller) requireNothingLeft(ctx context.Context, obj *eiriniv1.LRP) error {
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	err := c.live.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: revision.StatefulSetName(obj.Name)}, set)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the StatefulSet: %w", err)
	}
	if err == nil && metav1.IsControlledBy(set, obj) {
		return reconcile.ErrStale
	}
	return c.requireNoPods(ctx, obj)
}

// requireNoPods returns ErrStale if the API server has a Pod of the LRP that the cache lacks.
func (c Controller) requireNoPods(ctx context.Context, obj *eiriniv1.LRP) error {
	pods, err := c.listRemainingPods(ctx, obj)
	if err == nil && len(pods) > 0 {
		return reconcile.ErrStale
	}
	return err
}

// deleteOrphanedPods deletes the Pods of an LRP that no longer has a StatefulSet.
func (c Controller) deleteOrphanedPods(ctx context.Context, obj *eiriniv1.LRP) error {
	pods, err := c.listRemainingPods(ctx, obj)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return reconcile.ErrStale
	}
	var errs []error
	for i := range pods {
		errs = append(errs, reconcile.DeleteObserved(ctx, c.client, &pods[i]))
	}
	return errors.Join(errs...)
}
