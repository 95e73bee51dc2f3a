// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus writes fields of the status of an object other than that of the pass; applied then holds the object as
// the API server returned it. Fields that the owner applied before and now omits are removed; fields of other field
// managers are not changed.
func ApplyStatus(ctx context.Context, c client.Client, applied *unstructured.Unstructured, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply the status of %s %s: %w", applied.GetKind(), applied.GetName(), err)
	}
	return nil
}

// ApplyObserved writes fields of an observed object, identified by its UID: an object that is gone is not created
// again. Fields that the owner applied before and now omits are removed.
func ApplyObserved(ctx context.Context, c client.Client, applied *unstructured.Unstructured, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owner), client.ForceOwnership)
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	if err != nil {
		return fmt.Errorf("apply to %s %s: %w", applied.GetKind(), applied.GetName(), err)
	}
	return nil
}
