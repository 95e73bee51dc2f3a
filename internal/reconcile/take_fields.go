// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
)

// TakeFieldsOver makes owner the field manager of all fields of obj that the other project, such as MOCO, manages,
// except in subresources. The next apply by owner then removes the fields that it does not contain. TakeFieldsOver
// changes nothing if the object does not exist or the other project manages none of its fields. It reads the object
// from the API server, because the caches of NewLabelledCache have no managedFields.
func (g *WriterGuard) TakeFieldsOver(ctx context.Context, c client.Client, obj client.Object, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, APITimeout)
	defer cancel()
	kind, err := c.GroupVersionKindFor(obj)
	if err != nil {
		return fmt.Errorf("take over %s: %w", obj.GetName(), err)
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	if err := g.Signs.Reader.Get(ctx, client.ObjectKeyFromObject(obj), found); k8serrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read the field managers of %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	fields, err := otherwriter.TakeFields(found.ManagedFields, g.Signs.Upstream, owner)
	if err != nil || fields == nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": found.ResourceVersion, "managedFields": fields}})
	if err != nil {
		return fmt.Errorf("encode the field managers: %w", err)
	}
	err = c.Patch(ctx, found, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner))
	if k8serrors.IsConflict(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("take over the fields of %s %s: %w", kind.Kind, obj.GetName(), err)
	}
	return nil
}
