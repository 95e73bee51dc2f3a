// SPDX-License-Identifier: Apache-2.0

package delegatingmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// Cache is the cache of a manager. It rejects absent kinds that groups wait for, and kinds that it could not watch with
// the manager's options.
type Cache struct {
	cache.Cache
	scheme   *runtime.Scheme
	settings ScopeSettings
	mapper   *RefreshableMapper // mapper is nil if the cache has its own mapper
	client   *RefreshableClient
	reader   *RefreshableClient                   // reader is the manager's API reader
	leftOut  map[schema.GroupVersionKind]struct{} // leftOut has the kinds of ByObject that were not served when the cache was created

	mu    sync.Mutex
	gates map[schema.GroupVersionKind]*kindGate
	// readOnly has a key for each informer that may exist. The value is true if the informer was used only by reads.
	readOnly map[informers.InformerKind]bool
	indexes  map[informers.InformerKind][]*informers.FieldIndex // indexes are requested with IndexField
	indexed  map[informers.InformerKind]int                     // indexed counts the indexes that the informer of this cache has
	indexing sync.Mutex                                         // indexing is held while indexes are added to an informer
}

func newCache(scheme *runtime.Scheme) *Cache {
	return &Cache{
		scheme: scheme, leftOut: map[schema.GroupVersionKind]struct{}{},
		gates: map[schema.GroupVersionKind]*kindGate{}, readOnly: map[informers.InformerKind]bool{},
		indexes: map[informers.InformerKind][]*informers.FieldIndex{}, indexed: map[informers.InformerKind]int{},
	}
}

// OuterCache returns the cache itself.
func (c *Cache) OuterCache() *Cache { return c }

// FromCache returns c if it is a manager's cache, the cache of the manager if c is a scope's cache, and otherwise nil.
func FromCache(c cache.Cache) *Cache {
	if has, ok := c.(interface{ OuterCache() *Cache }); ok {
		return has.OuterCache()
	}
	return nil
}

// admitUse prepares a use of an informer, or returns an error if the use is not possible.
func (c *Cache) admitUse(ctx context.Context, obj runtime.Object, read bool) error {
	kind, err := informers.IdentifyObject(obj, c.scheme)
	if err != nil {
		return err
	}
	if err := c.recordUse(kind, read); err != nil {
		return err
	}
	return c.addIndexes(ctx, kind)
}

func (c *Cache) recordUse(kind informers.InformerKind, read bool) error {
	gvk := kind.GVK
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.gates[gvk]; g != nil && g.absent {
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	if _, out := c.leftOut[gvk]; out {
		return fmt.Errorf("expected %s to be served when the manager was created, "+
			"because ByObject of its cache.Options has an entry for it, found that it was not served: "+
			"use the kind in a conditional group, whose cache uses the entry, or restart the process now that the kind is served", gvk)
	}
	// A use other than a read keeps the informer permanently, because a plain controller depends on it.
	only, known := c.readOnly[kind]
	c.readOnly[kind] = read && (only || !known)
	return nil
}

// answerOf returns the cache for a use: the cache of the context's scope, or the manager's.
func (c *Cache) answerOf(ctx context.Context, obj runtime.Object, read bool) (cache.Cache, error) {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.Cache, nil
	}
	return c.Cache, c.admitUse(ctx, obj, read)
}

func (c *Cache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	from, err := c.answerOf(ctx, obj, true)
	if err != nil {
		return err
	}
	return from.Get(ctx, key, obj, opts...)
}

func (c *Cache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	from, err := c.answerOf(ctx, list, true)
	if err != nil {
		return err
	}
	return from.List(ctx, list, opts...)
}

func (c *Cache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	from, err := c.answerOf(ctx, obj, false)
	if err != nil {
		return nil, err
	}
	return from.GetInformer(ctx, obj, opts...)
}

func (c *Cache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	obj, err := c.scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	from, err := c.answerOf(ctx, obj, false)
	if err != nil {
		return nil, err
	}
	return from.GetInformerForKind(ctx, gvk, opts...)
}

// BorrowInformer returns the informer with which a plain controller watches a kind, and its cache, so a scope need not
// store the objects a second time. It never returns an informer for a kind with a known CRD. It also never returns one
// for a kind that groups wait for, or one that was created only by reads, because the cache may remove such informers.
func (c *Cache) BorrowInformer(ctx context.Context, kind informers.InformerKind) (cache.Cache, cache.Informer) {
	if c == nil || kind.UID != "" {
		return nil, nil
	}
	c.mu.Lock()
	onlyRead, known := c.readOnly[informers.InformerKind{GVK: kind.GVK, Form: kind.Form}]
	isGated := c.gates[kind.GVK] != nil
	c.mu.Unlock()
	if !known || onlyRead || isGated {
		return nil, nil
	}
	obj, err := kind.NewObject(c.scheme)
	if err != nil {
		return nil, nil
	}
	informer, err := c.Cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil // The scope creates its own informer, and reports why that is impossible.
	}
	return c.Cache, informer
}

// clientReader is the cache for the manager's client. A client that reads its own writes also calls GetInformer, which
// counts as a read.
type clientReader struct{ *Cache }

func (r clientReader) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if err := r.admitUse(ctx, obj, true); err != nil {
		return nil, err
	}
	return r.Cache.Cache.GetInformer(ctx, obj, opts...)
}

// kindGate is the last state of a kind that groups wait for.
type kindGate struct {
	absent     bool
	lastServed *detect.Verdict // lastServed is the last verdict whose presence is Served; nil if there was none
}

// NoteVerdicts receives the detector's verdicts about kinds that a group waits for. If a kind has become absent or has
// been replaced, the mapper is refreshed, and informers that were created only by reads are removed, because they would
// list a missing kind forever. The client and the API reader are refreshed only if the scope or plural of the kind has
// changed, because a replaced client that reads its own writes leaves its handlers behind.
func (c *Cache) NoteVerdicts(ctx context.Context, kinds []schema.GroupVersionKind, verdicts []detect.Verdict) error {
	// The manager was not created by conditional.NewManager.
	if c == nil {
		return nil
	}
	var left []client.Object
	var moved, elsewhere bool
	c.mu.Lock()
	for i, gvk := range kinds {
		g := c.gates[gvk]
		if g == nil {
			g = &kindGate{}
			c.gates[gvk] = g
		}
		m, e := g.noteVerdict(verdicts[i])
		if m {
			left = append(left, c.forgetReadsLocked(gvk)...)
		}
		moved, elsewhere = moved || m, elsewhere || e
	}
	c.mu.Unlock()
	var errs []error
	if moved && c.mapper != nil {
		errs = append(errs, c.mapper.Refresh())
	}
	if elsewhere {
		errs = append(errs, c.client.Refresh(), c.reader.Refresh())
	}
	if len(left) > 0 {
		go func() { // RemoveInformer may wait for a discovery request, but a group must not wait.
			for _, obj := range left {
				_ = c.RemoveInformer(context.WithoutCancel(ctx), obj) // The call fails only for a type without a kind, and this kind was already read.
			}
		}()
	}
	return errors.Join(errs...)
}

// noteVerdict reports whether the kind has become absent or was replaced, and whether its scope or plural has changed.
func (g *kindGate) noteVerdict(v detect.Verdict) (moved, elsewhere bool) {
	switch v.Presence {
	case detect.Served:
		known := g.lastServed != nil
		moved = known && !g.absent && g.lastServed.Identity != v.Identity
		// A CRD that was only replaced has another identity but the same scope and plural, and the client still finds
		// it.
		elsewhere = known && (g.lastServed.Plural != v.Plural || g.lastServed.Namespaced != v.Namespaced)
		g.absent, g.lastServed = false, &v
	case detect.Absent:
		moved = !g.absent
		g.absent = true
	case detect.Unclear:
	}
	return moved, elsewhere
}

// forgetReadsLocked returns an object for each form in which the kind was only read.
func (c *Cache) forgetReadsLocked(gvk schema.GroupVersionKind) (left []client.Object) {
	for _, form := range []informers.ObjectForm{informers.Typed, informers.Unstructured, informers.Metadata} {
		kind := informers.InformerKind{GVK: gvk, Form: form}
		if !c.readOnly[kind] {
			continue
		}
		delete(c.readOnly, kind)
		delete(c.indexed, kind)
		if obj, err := kind.NewObject(c.scheme); err == nil {
			left = append(left, obj)
		}
	}
	return left
}

// RemoveInformer removes an informer of this cache. With the context of a scope, it ends the scope's use of the
// informer instead.
func (c *Cache) RemoveInformer(ctx context.Context, obj client.Object) error {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.Cache.RemoveInformer(ctx, obj)
	}
	return c.Cache.RemoveInformer(ctx, obj)
}

// WaitForCacheSync waits for the informers of this cache, or, with the context of a scope, for the scope's informers.
func (c *Cache) WaitForCacheSync(ctx context.Context) bool {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.Cache.WaitForCacheSync(ctx)
	}
	return c.Cache.WaitForCacheSync(ctx)
}

// Scope contains the cache, client and API reader of an activation, which replace those of its manager.
type Scope struct {
	Cache     cache.Cache
	Client    client.Client
	APIReader client.Client
}

// scopeKey is the context key of the scope, separate for each outer cache.
type scopeKey struct{ outer *Cache }

// WithScope marks the context of code that runs in a scope. The scope then serves calls to the manager's client, cache
// and API reader. Therefore a reconciler that has stored the manager's client, in any place, reads from the cache that
// delivers its events. A handler that the reconciler adds ends with the scope, and no call takes effect after the scope
// has ended.
func WithScope(ctx context.Context, outer *Cache, scope Scope) context.Context {
	if outer == nil {
		return ctx
	}
	return context.WithValue(ctx, scopeKey{outer}, &scope)
}

func (c *Cache) scopeOf(ctx context.Context) *Scope {
	scope, _ := ctx.Value(scopeKey{c}).(*Scope)
	return scope
}

func (c *Cache) clientOf(ctx context.Context) client.Client {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.Client
	}
	return nil
}

func (c *Cache) apiReaderOf(ctx context.Context) client.Client {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.APIReader
	}
	return nil
}

// IndexField records an index. Every later scope has it. The informer of this cache gets it at its next use, so no
// informer is created only for scopes, and the kind need not be served now. With the context of a scope, only that
// scope gets the index.
func (c *Cache) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if scope := c.scopeOf(ctx); scope != nil {
		return scope.Cache.IndexField(ctx, obj, field, extract)
	}
	kind, err := informers.IdentifyObject(obj, c.scheme)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.indexes[kind], err = informers.AppendIndex(c.indexes[kind], &informers.FieldIndex{Object: obj, Field: field, Extract: extract, OfManager: true})
	return err
}

// addIndexes adds missing indexes to the informer of this cache.
func (c *Cache) addIndexes(ctx context.Context, kind informers.InformerKind) error {
	if len(c.missingIndexes(kind)) == 0 {
		return nil
	}
	// No other use may start before the indexes exist.
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

func (c *Cache) missingIndexes(kind informers.InformerKind) []*informers.FieldIndex {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.indexes[kind][c.indexed[kind]:]
}

// IndexesOf returns the indexes that were requested from this cache, for use in a scope.
func (c *Cache) IndexesOf(kind informers.InformerKind) []*informers.FieldIndex {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.indexes[kind])
}
