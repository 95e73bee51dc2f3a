// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APITimeout limits one call to the hub's API server.
const APITimeout = 10 * time.Second

// PatchObserved writes the differences between an observed object and the desired one. It returns ErrStale if the
// object was changed or deleted after it was observed.
func PatchObserved(ctx context.Context, c client.Client, before, after client.Object, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	var options []client.PatchOption
	if owner != "" {
		options = append(options, client.FieldOwner(owner))
	}
	err := c.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options...)
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err != nil {
		return fmt.Errorf("patch %s: %w", after.GetName(), err)
	}
	return nil
}

// DeleteObserved deletes an object unless it is already being deleted. Its UID is a precondition, so a newer object
// with the same name is not deleted. Its dependents are deleted in the background. The error is nil if the object is
// already gone.
func DeleteObserved(ctx context.Context, c client.Client, obj client.Object) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	err := c.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", obj.GetName(), err)
	}
	return nil
}

// RequireUnchanged reads an object into live, an empty object of the same type, and returns ErrStale unless it still
// has the resource version that was observed.
func RequireUnchanged(ctx context.Context, reader client.Reader, observed, live client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	err := reader.Get(ctx, client.ObjectKeyFromObject(observed), live)
	if k8serrors.IsNotFound(err) || err == nil && live.GetResourceVersion() != observed.GetResourceVersion() {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", observed.GetName(), err)
	}
	return nil
}
