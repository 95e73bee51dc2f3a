// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const statusSubresource = "status"

// applyStatus needs no optimistic lock: nobody else writes these fields, and a pass never decides on a version older than
// the one that its controller wrote last.
func (p *Pass[T, S, P]) applyStatus(ctx context.Context, before, after T) (changed bool, err error) {
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
	if err := p.takeOverStatus(ctx, before, after, old); err != nil {
		return true, err
	}
	return true, p.apply(ctx, after, status)
}

// takeOverStatus makes this controller the owner of what it will apply. A field that an update wrote stays with its writer, and
// would be left behind when this controller no longer applies it; that is so on objects that older versions of Torpor, or
// upstream's controllers, have written.
func (p *Pass[T, S, P]) takeOverStatus(ctx context.Context, before, after T, old map[string]any) error {
	entries := before.GetManagedFields()
	kept := slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == statusSubresource && e.Operation == metav1.ManagedFieldsOperationUpdate
	})
	if len(kept) == len(entries) {
		return nil
	}
	if len(kept) == 0 {
		kept = []metav1.ManagedFieldsEntry{{}} // An empty list is ignored; one empty entry takes all away.
	}
	// The version keeps what someone owns who writes at the same time; the next pass looks again.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": kept, "resourceVersion": before.GetResourceVersion()}})
	if err != nil {
		return fmt.Errorf("encode the owners of fields: %w", err)
	}
	// Through the status subresource the owners would stay as they are.
	released, _ := before.DeepCopyObject().(T)
	if err := p.Client.Patch(ctx, released, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("take over the status: %w", err)
	}
	isOwner := func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == statusSubresource && e.Operation == metav1.ManagedFieldsOperationApply && e.Manager == p.Owner
	}
	if slices.ContainsFunc(entries, isOwner) || len(old) == 0 {
		return nil
	}
	return p.apply(ctx, after, old)
}

func (p *Pass[T, S, P]) apply(ctx context.Context, obj T, status map[string]any) error {
	gvk, err := apiutil.GVKForObject(obj, p.Client.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of the object: %w", err)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	applied.SetGroupVersionKind(gvk)
	applied.SetNamespace(obj.GetNamespace())
	applied.SetName(obj.GetName())
	// The UID keeps a status from being written to another object of the same name.
	applied.SetUID(obj.GetUID())
	if err := p.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(p.Owner), client.ForceOwnership); err != nil {
		return err
	}
	obj.SetResourceVersion(applied.GetResourceVersion())
	return nil
}

// jsonFields brings typed values into the form of unstructured objects.
func jsonFields(fields any) (map[string]any, error) {
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, fmt.Errorf("decode the status: %w", err)
	}
	// An empty list is a field that is not applied; null would be one that is taken from everybody.
	maps.DeleteFunc(plain, func(_ string, value any) bool { return value == nil })
	return plain, nil
}
