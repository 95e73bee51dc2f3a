// SPDX-License-Identifier: Apache-2.0

package managercache

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/refreshclient"
)

// Cache is the cache of a manager. It refuses kinds that it could not watch with the manager's options, or not at all.
type Cache struct {
	cache.Cache
	scheme   *runtime.Scheme
	settings ScopeSettings
	mapper   *refreshclient.Mapper // nil when the cache has one of its own
	client   *refreshclient.Client
	leftOut  map[schema.GroupVersionKind]struct{} // kinds of ByObject that were not served when the cache was made

	mu    sync.Mutex
	gates map[schema.GroupVersionKind]*kindGate
	// readOnly has the informers that may exist, and whether reads alone have made them.
	readOnly map[informers.InformerKind]bool
}

func newCache(scheme *runtime.Scheme) *Cache {
	return &Cache{
		scheme: scheme, leftOut: map[schema.GroupVersionKind]struct{}{},
		gates: map[schema.GroupVersionKind]*kindGate{}, readOnly: map[informers.InformerKind]bool{},
	}
}

// OuterCache returns the cache itself.
func (c *Cache) OuterCache() *Cache { return c }

// FromCache returns the cache of this package that a manager's cache is, or that a scope's cache belongs to; nil when there
// is none.
func FromCache(c cache.Cache) *Cache {
	if has, ok := c.(interface{ OuterCache() *Cache }); ok {
		return has.OuterCache()
	}
	return nil
}

// admitUse records a use of an informer, or returns why there cannot be one.
func (c *Cache) admitUse(obj runtime.Object, read bool) error {
	gvk, form, err := informers.IdentifyObject(obj, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.gates[gvk]; g != nil && g.absent {
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	if _, out := c.leftOut[gvk]; out {
		return fmt.Errorf("expected %s to be served when the manager was made, since ByObject of its cache.Options has an entry for it, found that it was not: "+
			"use the kind in a conditional group, whose cache heeds the entry, or restart the process now that the kind is served", gvk)
	}
	kind := informers.InformerKind{GVK: gvk, Form: form}
	// One use that is not a read keeps the informer for good, since a plain controller depends on it.
	only, known := c.readOnly[kind]
	c.readOnly[kind] = read && (only || !known)
	return nil
}

// Get reads one object.
func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if err := c.admitUse(obj, true); err != nil {
		return err
	}
	return c.Cache.Get(ctx, key, obj, opts...)
}

// List reads many objects.
func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.admitUse(list, true); err != nil {
		return err
	}
	return c.Cache.List(ctx, list, opts...)
}

// GetInformer returns the informer of obj's kind.
func (c *Cache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := c.admitUse(obj, false); err != nil {
		return nil, err
	}
	return c.Cache.GetInformer(ctx, obj, opts...)
}

// GetInformerForKind is GetInformer for a kind of the scheme.
func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := c.admitUse(obj, false); err != nil {
		return nil, err
	}
	return c.Cache.GetInformerForKind(ctx, gvk, opts...)
}

// IndexField adds an index to the informer of obj's kind.
func (c *Cache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if err := c.admitUse(obj, false); err != nil {
		return err
	}
	return c.Cache.IndexField(ctx, obj, field, extract)
}

// clientReader is the cache as the manager's client has it: one that reads its own writes asks for informers, too.
type clientReader struct{ *Cache }

// GetInformer returns the informer of obj's kind.
func (r clientReader) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := r.admitUse(obj, true); err != nil {
		return nil, err
	}
	return r.Cache.Cache.GetInformer(ctx, obj, opts...)
}
