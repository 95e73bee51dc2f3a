// SPDX-License-Identifier: Apache-2.0

// Package objecteditor lists, changes and deletes objects of a cluster, for the commands that uninstall Torpor and that
// hand over objects of Korifi. It prints a line for each change.
package objecteditor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PageSize is the number of objects in each page of a list.
const PageSize = 500

// Editor changes objects with the permissions of the administrator.
type Editor struct {
	Client client.Client
	// DryRun prints the changes without making them.
	DryRun bool
	// Out receives a line for each changed object.
	Out io.Writer
}

// EachObject calls do with the metadata of every object of a kind, and joins the errors. It reads the objects in
// pages. A kind that is not served has no objects.
func (e Editor) EachObject(ctx context.Context, kind schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata) error, options ...client.ListOption) error {
	var failed []error
	token := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := e.Client.List(ctx, list, append(options, client.Limit(PageSize), client.Continue(token))...); err != nil {
			return errors.Join(append(failed, IgnoreNotServed(err))...)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			obj.SetGroupVersionKind(kind)
			failed = append(failed, do(obj))
		}
		if token = list.Continue; token == "" {
			return errors.Join(failed...)
		}
	}
}

// HasObject reads an object into obj, and reports whether it exists.
func (e Editor) HasObject(ctx context.Context, key types.NamespacedName, obj client.Object) (bool, error) {
	err := e.Client.Get(ctx, key, obj)
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s: %w", obj, key.Name, err)
	}
	return true, nil
}

// DeleteObject deletes an object that was read, and its dependents in the background. It does not delete a newer
// object of the same name.
func (e Editor) DeleteObject(ctx context.Context, obj client.Object, why string) error {
	if e.DryRun {
		e.Print("would delete", obj, why)
		return nil
	}
	if err := e.Client.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %T %s: %w", obj, obj.GetName(), err)
	}
	e.Print("deleted", obj, why)
	return nil
}

// PatchMetadata applies a merge patch to the metadata of an object. It fails if the object has changed since it was
// read, but not if the object no longer exists.
func (e Editor) PatchMetadata(ctx context.Context, obj *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["resourceVersion"] = obj.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	if err := e.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change %s %s/%s: %w", obj.Kind, obj.Namespace, obj.Name, err)
	}
	return nil
}

// Print prints a line about a change to an object, followed by the reason unless it is empty.
func (e Editor) Print(done string, obj client.Object, why string) {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if gvk, err := e.Client.GroupVersionKindFor(obj); kind == "" && err == nil {
		kind = gvk.Kind
	}
	name := obj.GetName()
	if obj.GetNamespace() != "" {
		name = obj.GetNamespace() + "/" + name
	}
	if why != "" {
		why = ": " + why
	}
	// A failed write means that the output has no reader.
	_, _ = fmt.Fprintf(e.Out, "%s %s %s%s\n", done, kind, name, why)
}

// IgnoreNotServed returns nil for the error that the API server does not serve a kind, and other errors unchanged.
func IgnoreNotServed(err error) error {
	if k8serrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}
