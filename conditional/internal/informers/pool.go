// SPDX-License-Identifier: Apache-2.0

// Package informers shares the informers of one API server between scopes. An informer runs while it is leased. Each
// informer has its own cache, so it does not wait for another informer's sync and can be stopped separately.
package informers

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Pool contains the informers of one API server.
type Pool struct {
	cfg    *rest.Config
	opts   cache.Options
	borrow BorrowFunc
	counts *poolCounts

	mu     sync.Mutex
	shared map[InformerKind]*pooledInformer
}

// poolCounts holds the counts of a pool and of all pools derived from it.
type poolCounts struct{ informers, leases atomic.Int64 }

// BorrowFunc returns an informer for the kind that runs independently of the pool, and its cache; nil if none exists.
type BorrowFunc func(ctx context.Context, k InformerKind) (cache.Cache, cache.Informer)

// New returns an empty pool. borrow may be nil. opts must contain the HTTP client and the scheme; its mapper is not
// used. The entry of ByObject for a kind applies to the kind's informer.
func New(cfg *rest.Config, opts cache.Options, borrow BorrowFunc) *Pool {
	return &Pool{cfg: cfg, opts: opts, borrow: borrow, counts: &poolCounts{}, shared: map[InformerKind]*pooledInformer{}}
}

// WithOptions returns an empty pool with other options. It does not borrow informers.
func (p *Pool) WithOptions(adjust func(*cache.Options)) *Pool {
	opts := p.opts
	opts.ByObject, opts.DefaultNamespaces = maps.Clone(opts.ByObject), maps.Clone(opts.DefaultNamespaces)
	adjust(&opts)
	return &Pool{cfg: p.cfg, opts: opts, counts: p.counts, shared: map[InformerKind]*pooledInformer{}}
}

// ReadsNeedInformer reports whether the options forbid reads to create informers.
func (p *Pool) ReadsNeedInformer() bool { return p.opts.ReaderFailOnMissingInformer }

// InformerCount returns the number of running informers, including those that are still stopping.
func (p *Pool) InformerCount() int { return int(p.counts.informers.Load()) }

func (p *Pool) LeaseCount() int { return int(p.counts.leases.Load()) }

// Lease returns a lease of the kind's informer with the indexes, and starts the informer if it is not running. Lease
// sends no request and does not wait for the sync. The informer outlives ctx.
func (p *Pool) Lease(ctx context.Context, k InformerKind, indexes []*FieldIndex) (*Lease, error) {
	e, err := p.acquireInformer(ctx, k, len(indexes) > 0)
	if err != nil {
		return nil, fmt.Errorf("start an informer of %s: %w", k.GVK, err)
	}
	l := &Lease{pool: p, entry: e, names: map[string]string{}}
	isComplete := false
	defer func() { // The function of an index may panic on an existing object.
		if !isComplete {
			l.Release()
		}
	}()
	for _, i := range indexes {
		if err := l.AddIndex(ctx, i); err != nil {
			return nil, fmt.Errorf("index field %s of %s: %w", i.Field, k.GVK, err)
		}
	}
	isComplete = true
	return l, nil
}

// acquireInformer returns the shared informer of a kind, and counts a lease of it. If the shared informer has too
// many indexes of ended leases, or is borrowed although the lease needs indexes, a new informer replaces it. The old one
// continues to run for its other leases.
func (p *Pool) acquireInformer(ctx context.Context, k InformerKind, needsIndexes bool) (e *pooledInformer, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e = p.shared[k]
	if e != nil && (needsIndexes && e.isBorrowed || e.endedIndexes >= maxEndedIndexes) {
		e = nil
	}
	if e == nil && !needsIndexes && p.borrow != nil {
		if c, informer := p.borrow(ctx, k); c != nil {
			e = &pooledInformer{kind: k, cache: c, informer: informer, cancel: func() {}, isBorrowed: true}
		}
	}
	if e == nil {
		if e, err = p.startInformer(ctx, k); err != nil {
			return nil, err
		}
	}
	p.shared[k] = e
	e.leases++
	p.counts.leases.Add(1)
	return e, nil
}

// cacheOptions returns the options for a cache of this kind alone.
func (p *Pool) cacheOptions(ctx context.Context, k InformerKind) cache.Options {
	opts := p.opts
	opts.Mapper = k.newRESTMapper()
	opts.ReaderFailOnMissingInformer = false
	opts.ByObject = nil
	for obj, by := range p.opts.ByObject {
		if gvk, err := apiutil.GVKForObject(obj, opts.Scheme); err == nil && gvk == k.GVK {
			opts.ByObject = map[client.Object]cache.ByObject{obj: by}
		}
	}
	// If one of these options is set, controller-runtime may create a cache for several namespaces, which needs
	// stoppable informers. A cache of one namespace can use them, too.
	maybeMany := len(opts.DefaultNamespaces) > 0 || len(opts.ByObject) > 0
	opts.NewInformer = withWatchDraining(ctx, opts.NewInformer, maybeMany)
	return opts
}

// returnLease returns one lease. The informer stops with the last lease, unless it is borrowed.
func (p *Pool) returnLease(l *Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := l.entry
	p.counts.leases.Add(-1)
	e.endedIndexes += l.end()
	if e.leases--; e.leases > 0 {
		return
	}
	if p.shared[e.kind] == e {
		delete(p.shared, e.kind)
	}
	e.cancel()
}

// pooledInformer is one informer in its own cache.
type pooledInformer struct {
	kind       InformerKind
	cache      cache.Cache
	informer   cache.Informer
	cancel     context.CancelFunc
	isBorrowed bool

	// The pool guards these fields.
	leases       int
	endedIndexes int // endedIndexes is the number of indexes that belonged to ended leases

	indexing   sync.RWMutex           // indexing guards the informer's map of indexes, and the following fields
	indexCount int                    // indexCount is the number of indexes that were added
	ofManager  map[*FieldIndex]string // ofManager holds the names of the manager's indexes
}

func (p *Pool) startInformer(ctx context.Context, k InformerKind) (*pooledInformer, error) {
	obj, err := k.NewObject(p.opts.Scheme)
	if err != nil {
		return nil, err
	}
	e := &pooledInformer{kind: k, ofManager: map[*FieldIndex]string{}}
	// The informer outlives the call that starts it. It also outlives that call's scope, while other scopes lease it.
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if e.cache, err = cache.New(p.cfg, p.cacheOptions(ctx, k)); err != nil {
		e.cancel()
		return nil, err
	}
	if e.informer, err = e.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
		e.cancel()
		return nil, err
	}
	p.counts.informers.Add(1)
	go func() {
		defer p.counts.informers.Add(-1)
		_ = e.cache.Start(ctx) // Start fails only if it is called twice.
	}()
	return e, nil
}

// Lease is a lease of an informer. Handlers must be removed before the release, because the informer may continue for
// other leases.
type Lease struct {
	pool    *Pool
	entry   *pooledInformer
	once    sync.Once
	own     atomic.Int32 // own is the number of indexes that belong to this lease alone
	isEnded atomic.Bool  // isEnded makes those indexes return no values for new objects

	mu    sync.Mutex
	names map[string]string // names maps the lease's names of indexes to the names in the informer
}

func (l *Lease) Kind() InformerKind { return l.entry.kind }

// Informer returns the informer, which may not have synced yet. Its HasSyncedChecker may also be done when the informer
// stops without a sync; HasSynced returns false in that case.
func (l *Lease) Informer() cache.Informer { return l.entry.informer }

// Reader returns a reader for the informer's objects. It must not be used before the informer has synced, nor for
// another kind.
func (l *Lease) Reader() client.Reader { return leaseReader{l.entry.cache, l} }

// Release returns the lease. It does not wait, and may be called more than once.
func (l *Lease) Release() { l.once.Do(func() { l.pool.returnLease(l) }) }

// ObjectForm is the form in which an informer stores objects.
type ObjectForm int8

// Forms of an object. An informer has exactly one of them.
const (
	Typed ObjectForm = iota
	Unstructured
	Metadata
)

func FormOf(obj runtime.Object) ObjectForm {
	switch obj.(type) {
	case runtime.Unstructured:
		return Unstructured
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return Metadata
	}
	return Typed
}

// IdentifyObject returns the kind and the form of an object or of a list.
func IdentifyObject(obj runtime.Object, scheme *runtime.Scheme) (InformerKind, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if meta.IsListType(obj) {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return InformerKind{GVK: gvk, Form: FormOf(obj)}, err
}

// InformerKind contains everything that distinguishes one informer from another.
type InformerKind struct {
	GVK        schema.GroupVersionKind
	Form       ObjectForm
	Plural     string
	Namespaced bool
	// UID is the UID of the kind's CRD; empty if it is unknown or there is no CRD.
	UID string
}

// IsLost reports whether the kind that an informer watches no longer exists: it is absent, or its CRD has another UID,
// or it no longer has a CRD.
func (k InformerKind) IsLost(isAbsent bool, uid string) bool {
	return isAbsent || k.UID != "" && k.UID != uid
}

func (k InformerKind) RESTMapping() *meta.RESTMapping {
	return &meta.RESTMapping{
		Resource:         k.GVK.GroupVersion().WithResource(k.Plural),
		GroupVersionKind: k.GVK,
		Scope:            k.restScope(),
	}
}

func (k InformerKind) restScope() meta.RESTScope {
	if k.Namespaced {
		return meta.RESTScopeNamespace
	}
	return meta.RESTScopeRoot
}

// newRESTMapper returns a mapper for only this kind, and its list kind, which caches of several namespaces need.
func (k InformerKind) newRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{k.GVK.GroupVersion()})
	resource := k.GVK.GroupVersion().WithResource(k.Plural)
	mapper.AddSpecific(k.GVK, resource, resource, k.restScope())
	mapper.Add(k.GVK.GroupVersion().WithKind(k.GVK.Kind+"List"), k.restScope())
	return mapper
}

// NewObject returns an empty object of the kind in its form.
func (k InformerKind) NewObject(scheme *runtime.Scheme) (client.Object, error) {
	switch k.Form {
	case Unstructured:
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	case Metadata:
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(k.GVK)
		return obj, nil
	case Typed:
	}
	made, err := scheme.New(k.GVK)
	if err != nil {
		return nil, fmt.Errorf("find the Go type of %s in the manager's scheme (add it with AddToScheme): %w", k.GVK, err)
	}
	obj, ok := made.(client.Object)
	if !ok {
		return nil, fmt.Errorf("expected an object with metadata for %s in the manager's scheme, found %T: it cannot be watched", k.GVK, made)
	}
	return obj, nil
}
