// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const emptyPatch = "{}"

// patchStatus writes what differs, and only if nobody else wrote since the object was read.
// It reports whether there was anything to write.
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
