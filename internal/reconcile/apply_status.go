// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ApplyStatus applies status fields to an object other than the one that the pass reconciles. It replaces the content
// of applied with the object that the API server returns. Fields that the owner applied before and now omits are
// removed; fields that only other field managers own are not changed.
func ApplyStatus(ctx context.Context, c client.Client, applied *unstructured.Unstructured, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply the status of %s %s: %w", applied.GetKind(), applied.GetName(), err)
	}
	return nil
}

// ApplyObserved applies fields to an observed object. applied contains the object's UID, so a deleted object is not
// created again; ApplyObserved then returns ErrStale. Fields that the owner applied before and now omits are removed.
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
