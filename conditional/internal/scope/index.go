// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IndexField adds an index to the scope's informer of obj, which is not shared then: an index cannot be taken out of
// an informer, and no two may have the same name. For an optional kind it is added whenever the kind comes.
func (v *scopedCache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if v.lifetime.Err() != nil {
		return ErrClosed
	}
	s, err := v.informerKeyOf(obj)
	if err != nil {
		return err
	}
	u, err := v.existingInformer(s)
	if err != nil {
		return err
	}
	// An informer that is not in use yet can be a private one, which takes indexes.
	if u == nil {
		if u, err = v.addInformer(ctx, s, true); err != nil {
			return err
		}
	}
	return u.addIndex(fieldIndex{obj, field, extract})
}

func (u *scopedInformer) addIndex(i fieldIndex) error {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	switch {
	case u.cache.isClosed:
		return ErrClosed
	case !u.isPrivate:
		return newLateIndexError(u.key, "IndexField")
	}
	if u.lease != nil {
		if err := u.lease.IndexField(u.cache.lifetime, i.obj, i.field, i.extract); err != nil {
			return err
		}
	}
	u.indexes = append(u.indexes, i)
	return nil
}

func newLateIndexError(s informerKey, call string) error {
	return fmt.Errorf("expected %s before the first use of %s in this setup, found its informer in use, which other controllers share: "+
		"call mgr.GetFieldIndexer().IndexField first, before controllers are built and objects read", call, s.gvk)
}
