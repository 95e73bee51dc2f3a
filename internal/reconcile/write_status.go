// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
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
