// SPDX-License-Identifier: Apache-2.0

package spaces

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// owner is a CFOrg or a CFSpace and what its namespace is.
type owner struct {
	client.Object
	finalizer string
	labels    map[string]string
}

func (c Controller) stepOrg(ctx context.Context, org *korifiv1alpha1.CFOrg) (reconcile.Outcome, error) {
	ready, out, err := c.namespace(ctx, owner{org, korifiv1alpha1.OrgFinalizer, map[string]string{korifiv1alpha1.OrgGUIDLabel: org.Name}})
	if ready != nil {
		org.Status.ObservedGeneration, org.Status.GUID = org.Generation, guid(ready, org)
		reconcile.SetCondition(&org.Status.Conditions, *ready, org.Generation, c.Clock)
	}
	return out, err
}

func (c Controller) stepSpace(ctx context.Context, space *korifiv1alpha1.CFSpace) (reconcile.Outcome, error) {
	ready, out, err := c.namespace(ctx, owner{space, korifiv1alpha1.SpaceFinalizer, map[string]string{
		korifiv1alpha1.OrgGUIDLabel: space.Namespace, korifiv1alpha1.SpaceGUIDLabel: space.Name,
	}})
	if ready != nil {
		space.Status.ObservedGeneration, space.Status.GUID = space.Generation, guid(ready, space)
		reconcile.SetCondition(&space.Status.Conditions, *ready, space.Generation, c.Clock)
	}
	return out, err
}

func guid(ready *metav1.Condition, o client.Object) string {
	if ready.Status != metav1.ConditionTrue {
		return ""
	}
	return o.GetName()
}

// namespace makes the namespace of an org or a space, and deletes it with its owner. A namespace without the owner's
// labels is somebody else's, and is left alone. There is no condition while the finalizers change.
func (c Controller) namespace(ctx context.Context, o owner) (*metav1.Condition, reconcile.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	found := &corev1.Namespace{}
	err := c.live.Get(ctx, client.ObjectKey{Name: o.GetName()}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, reconcile.Outcome{}, fmt.Errorf("read the namespace: %w", err)
	}
	there, kept := err == nil, controllerutil.ContainsFinalizer(o, o.finalizer)
	mine := there && carries(found.Labels, o.labels)
	switch {
	case !o.GetDeletionTimestamp().IsZero() && !kept:
		return nil, reconcile.Outcome{Why: "it is being deleted"}, nil
	case !o.GetDeletionTimestamp().IsZero() && mine:
		if found.DeletionTimestamp.IsZero() {
			err = c.client.Delete(ctx, found, client.Preconditions{UID: new(found.UID)})
		}
		return nil, reconcile.Outcome{After: goneInterval, Why: "delete the namespace"}, client.IgnoreNotFound(err)
	case !o.GetDeletionTimestamp().IsZero():
		return nil, reconcile.Outcome{Why: "the namespace is gone"}, c.finalize(ctx, o, controllerutil.RemoveFinalizer)
	case !kept:
		return nil, reconcile.Outcome{Why: "keep it until its namespace is gone"}, c.finalize(ctx, o, controllerutil.AddFinalizer)
	case !there:
		return nil, reconcile.Outcome{Why: "make the namespace"}, c.make(ctx, o)
	case !mine || !found.DeletionTimestamp.IsZero():
		return &metav1.Condition{
			Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: korifiv1alpha1.NameTakenReason,
			Message: "expected the namespace " + o.GetName() + " to be free, found one that is another's or is being deleted; delete it, or choose another name",
		}, reconcile.Outcome{After: goneInterval, Why: "name taken"}, nil
	default:
		return &metav1.Condition{
			Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: korifiv1alpha1.NamespaceReadyReason,
			Message: "the namespace " + o.GetName() + " is there",
		}, reconcile.Outcome{Why: "as it should be"}, nil
	}
}

func (c Controller) make(ctx context.Context, o owner) error {
	err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: maps.Clone(o.labels)}}, client.FieldOwner(Name))
	if err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the namespace: %w", err)
	}
	return nil
}

func (c Controller) finalize(ctx context.Context, o owner, change func(client.Object, string) bool) error {
	after, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	change(after, o.finalizer)
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(o.Object, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if err != nil && !k8serrors.IsConflict(err) && !k8serrors.IsNotFound(err) {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}

func carries(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}
