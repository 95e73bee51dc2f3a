// SPDX-License-Identifier: Apache-2.0

package managercache

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// scopeKey finds the scope whose context this is, for each outer cache its own.
type scopeKey struct{ outer *Cache }

// WithScope marks the context of what runs in a scope: its uses of the outer cache are answered by the scope's. So a reconciler
// that has kept the manager's client, in a closure for example, reads from the cache that its events come from, and a handler
// that it adds ends with the scope.
func WithScope(ctx context.Context, outer *Cache, scope cache.Cache) context.Context {
	if outer == nil {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{outer}, scope)
}

func (c *Cache) scopeOf(ctx context.Context) cache.Cache {
	scope, _ := ctx.Value(scopeKey{c}).(cache.Cache)
	return scope
}

// IndexField records an index. Scopes have it in each of their lives; the informer of this cache gets it with its first use, so
// that none is made that only scopes need, and that the kind need not be served now.
func (c *Cache) IndexField(_ context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	gvk, form, err := informers.IdentifyObject(obj, c.scheme)
	if err != nil {
		return err
	}
	kind := informers.InformerKind{GVK: gvk, Form: form}
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.indexes[kind], func(other informers.FieldIndex) bool { return other.Field == field }) {
		return fmt.Errorf("expected one index of %s by field %s, found another one of that name: indexer conflict", gvk, field)
	}
	c.indexes[kind] = append(c.indexes[kind], informers.FieldIndex{Object: obj, Field: field, Extract: extract})
	return nil
}

// addIndexes adds to the informer of this cache what it lacks.
func (c *Cache) addIndexes(ctx context.Context, kind informers.InformerKind) error {
	if len(c.missingIndexes(kind)) == 0 {
		return nil
	}
	// Another use must not begin before the indexes are there.
	c.indexing.Lock()
	defer c.indexing.Unlock()
	for _, i := range c.missingIndexes(kind) {
		if err := c.Cache.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return err
		}
		c.mu.Lock()
		c.indexed[kind]++
		c.mu.Unlock()
	}
	return nil
}

func (c *Cache) missingIndexes(kind informers.InformerKind) []informers.FieldIndex {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.indexes[kind][c.indexed[kind]:]
}

// IndexesOf returns the field indexes that a manager's cache was asked for: what ManagerOptions has recorded, or what an informer
// of controller-runtime's cache has. It makes no informer.
func IndexesOf(outer cache.Cache, kind informers.InformerKind, scheme *runtime.Scheme) []informers.FieldIndex {
	if c := FromCache(outer); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.indexes[kind])
	}
	obj, err := kind.NewObject(scheme)
	if err != nil {
		return nil // The informer returns this error.
	}
	return informers.CopyIndexes(peekInformer(outer, kind.GVK, obj))
}

// peekInformer returns the informer of a cache of controller-runtime, nil when there is none. GetInformer would make one. The
// cache of a manager with default options has a method Peek, with a result that only its own packages can name.
func peekInformer(in cache.Cache, gvk schema.GroupVersionKind, obj runtime.Object) toolscache.SharedIndexInformer {
	if in == nil {
		return nil
	}
	peek := reflect.ValueOf(in).MethodByName("Peek")
	if !peek.IsValid() || peek.Type().NumIn() != 2 || peek.Type().In(0) != reflect.TypeFor[schema.GroupVersionKind]() ||
		peek.Type().In(1) != reflect.TypeFor[runtime.Object]() || peek.Type().NumOut() == 0 {
		return nil
	}
	entry := reflect.Indirect(peek.Call([]reflect.Value{reflect.ValueOf(gvk), reflect.ValueOf(obj)})[0])
	if entry.Kind() != reflect.Struct {
		return nil
	}
	field := entry.FieldByName("Informer")
	if !field.IsValid() || !field.CanInterface() {
		return nil
	}
	informer, _ := reflect.TypeAssert[toolscache.SharedIndexInformer](field)
	return informer
}
