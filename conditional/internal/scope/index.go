// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IndexField adds an index to the scope's informer of obj, which is not shared then: an index cannot be taken out of
// an informer, and no two may have the same name. For an optional kind it is added whenever the kind comes.
func (v *view) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if v.life.Err() != nil {
		return ErrClosed
	}
	s, err := v.slotOf(obj)
	if err != nil {
		return err
	}
	u, err := v.existing(s)
	if err != nil {
		return err
	}
	if u == nil {
		if u, err = v.add(ctx, s, true); err != nil {
			return err
		}
	}
	return u.index(index{obj, field, extract})
}

func (u *use) index(i index) error {
	u.view.mu.Lock()
	defer u.view.mu.Unlock()
	switch {
	case u.view.closed:
		return ErrClosed
	case !u.private:
		return lateIndex(u.slot, "IndexField")
	}
	if u.lease != nil {
		if err := u.lease.IndexField(u.view.life, i.obj, i.field, i.extract); err != nil {
			return err
		}
	}
	u.indexes = append(u.indexes, i)
	return nil
}

func lateIndex(s slot, call string) error {
	return fmt.Errorf("expected %s before the first use of %s in this setup, found its informer in use, which other controllers share: "+
		"call mgr.GetFieldIndexer().IndexField first, before controllers are built and objects read", call, s.gvk)
}
