// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const emptyPatch = "{}"

// writeStatus writes what differs, and reports whether there was anything to write.
func (p *Pass[T, S, P]) writeStatus(ctx context.Context, before, after T) (changed bool, err error) {
	if p.OwnedStatus != nil {
		return p.applyStatus(ctx, before, after)
	}
	return patchStatus(ctx, p.Client, before, after)
}

// patchStatus writes only if nobody else wrote since the object was read.
func patchStatus[T client.Object](ctx context.Context, c client.Client, before, after T) (bool, error) {
	diff, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return false, fmt.Errorf("compute status patch: %w", err)
	}
	if string(diff) == emptyPatch {
		return false, nil
	}
	return true, c.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// applyStatus needs no optimistic lock: nobody else writes these fields, and a pass never decides on a version older than
// the one that it wrote last.
func (p *Pass[T, S, P]) applyStatus(ctx context.Context, before, after T) (bool, error) {
	old, err := jsonFields(p.OwnedStatus(before))
	if err != nil {
		return false, err
	}
	status, err := jsonFields(p.OwnedStatus(after))
	if err != nil {
		return false, err
	}
	if equality.Semantic.DeepEqual(old, status) {
		return false, nil
	}
	gvk, err := apiutil.GVKForObject(after, p.Client.Scheme())
	if err != nil {
		return false, fmt.Errorf("find the kind of the object: %w", err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	applied.SetGroupVersionKind(gvk)
	applied.SetNamespace(after.GetNamespace())
	applied.SetName(after.GetName())
	// The UID keeps a status from being written to another object of the same name.
	applied.SetUID(after.GetUID())
	err = p.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(p.Owner), client.ForceOwnership)
	if err != nil {
		return true, err
	}
	after.SetResourceVersion(applied.GetResourceVersion())
	return true, nil
}

// jsonFields brings typed values into the form of unstructured objects.
func jsonFields(fields map[string]any) (map[string]any, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, fmt.Errorf("decode the status: %w", err)
	}
	return plain, nil
}
