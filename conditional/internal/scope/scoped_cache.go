// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/managercache"
	"github.com/torpor-dev/torpor/conditional/internal/serverstate"
)

// scopedCache is the cache of one scope. It leases informers that it shares with other scopes. It never polls, and
// waits for the informers and handlers of its own scope only; controller-runtime's own start of a controller costs
// 100 ms per poll.
type scopedCache struct {
	lifetime          context.Context
	scheme            *runtime.Scheme
	state             *serverstate.SharedState
	managerCache      *managercache.Cache // nil when the manager was made without ManagerOptions
	readsNeedInformer bool                // reads make no informer
	mapper            *scopedMapper
	reportError       func(error) // ends the scope
	refreshClients    func()      // makes the scope's clients forget where kinds are
	started           chan struct{}
	running           sync.WaitGroup // the goroutine that follows the optional kinds

	mu           sync.Mutex
	informers    map[informerKey]*scopedInformer
	optional     map[schema.GroupVersionKind]*optionalKind // the map itself never changes
	gates        []*eventGate                              // of all handlers that may still run
	stopWatching func()
	isMuted      bool // no handlers any more
	isClosed     bool
}

// informerKey identifies a scope's one informer of a kind in one form.
type informerKey struct {
	gvk  schema.GroupVersionKind
	form informers.ObjectForm
}

func newScopedCache(life context.Context, cl cluster.Cluster, h *serverstate.SharedState, o Options) *scopedCache {
	v := &scopedCache{
		lifetime: life, scheme: cl.GetScheme(), state: h, managerCache: managercache.FromCache(cl.GetCache()),
		started:      make(chan struct{}),
		informers:    map[informerKey]*scopedInformer{},
		optional:     map[schema.GroupVersionKind]*optionalKind{},
		stopWatching: func() {},
	}
	v.readsNeedInformer = v.managerCache.ScopeSettings().Cache.ReaderFailOnMissingInformer
	for _, gvk := range o.Optional {
		v.optional[gvk] = &optionalKind{settled: newLatch()}
	}
	return v
}

// OuterCache returns the cache of the outer manager, so that groups in a scope inherit, too.
func (v *scopedCache) OuterCache() *managercache.Cache { return v.managerCache }

// Start lets reads begin, and returns when ctx ends. Informers run from their first use on.
func (v *scopedCache) Start(ctx context.Context) error {
	close(v.started)
	<-ctx.Done()
	return nil
}

// WaitForCacheSync returns true when all informers and handlers of the scope have synced, false when ctx or the
// scope ends before. That it waits for handlers too spares a controller to poll for its own.
func (v *scopedCache) WaitForCacheSync(ctx context.Context) bool {
	return v.waitForSyncs(ctx, (*scopedInformer).pendingSyncs)
}

// waitForInformers leaves out the handlers: those that setup adds may wait for a runnable that has yet to start.
func (v *scopedCache) waitForInformers(ctx context.Context) bool {
	return v.waitForSyncs(ctx, func(u *scopedInformer) []pendingSync { return u.pendingSyncs()[:1] })
}

func (v *scopedCache) waitForSyncs(ctx context.Context, what func(*scopedInformer) []pendingSync) bool {
	if v.waitDone(ctx, v.started, nil) != nil {
		return false
	}
	v.mu.Lock()
	var pending []pendingSync
	for _, u := range v.informers {
		pending = append(pending, what(u)...)
	}
	v.mu.Unlock()
	for _, p := range pending {
		// An informer or handler that was removed meanwhile needs no sync.
		if err := v.waitDone(ctx, p.done, p.gone); err != nil && !errors.Is(err, errInformerRemoved) {
			return false
		}
	}
	return v.lifetime.Err() == nil
}

// pendingSync is a sync that counts until it is done, or until what has to sync is gone.
type pendingSync struct{ done, gone <-chan struct{} }

// waitDone returns nil when done is closed, ErrClosed when the scope ends before, errInformerRemoved for gone, or the error of ctx.
func (v *scopedCache) waitDone(ctx context.Context, done, gone <-chan struct{}) error {
	if isClosed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-v.lifetime.Done():
		return ErrClosed
	case <-gone:
		return errInformerRemoved
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// informerKeyOf returns the key of an object or of a list.
func (v *scopedCache) informerKeyOf(obj runtime.Object) (informerKey, error) {
	gvk, form, err := informers.IdentifyObject(obj, v.scheme)
	return informerKey{gvk, form}, err
}

// knownKind returns what there is to know of a kind without a request. It returns an error for an optional kind that is
// absent.
func (v *scopedCache) knownKind(gvk schema.GroupVersionKind) (kind informers.InformerKind, knownKind bool, err error) {
	if p := v.optional[gvk]; p != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		if p.kind != nil {
			return *p.kind, true, nil
		}
		if p.isAbsent {
			return kind, false, newNoMatchError(gvk)
		}
	}
	// The detector knows the kinds of conditions, and so most that a group uses, without a request.
	if verdict, ok := v.state.Detector.KnownVerdict(gvk); ok && verdict.Presence == detect.Served {
		return kindFromVerdict(gvk, verdict), true, nil
	}
	return kind, false, nil
}

func kindFromVerdict(gvk schema.GroupVersionKind, verdict detect.Verdict) informers.InformerKind {
	return informers.InformerKind{GVK: gvk, Plural: verdict.Plural, Namespaced: verdict.Namespaced, UID: verdict.UID}
}

func newNoMatchError(gvk schema.GroupVersionKind) error {
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// findKind returns what an informer of the kind has to watch, but for the form; a kind that the detector does not know is
// looked up.
func (v *scopedCache) findKind(ctx context.Context, gvk schema.GroupVersionKind) (informers.InformerKind, error) {
	kind, known, err := v.knownKind(gvk)
	if known || err != nil {
		return kind, err
	}
	if kind, err = v.discoverKind(ctx, gvk); err != nil {
		return kind, fmt.Errorf("find the resource of %s: %w", gvk, err)
	}
	return kind, nil
}

// discoverKind asks discovery, which takes no context, without waiting for it longer than for ctx and the scope.
func (v *scopedCache) discoverKind(ctx context.Context, gvk schema.GroupVersionKind) (kind informers.InformerKind, err error) {
	var mapping *meta.RESTMapping
	var failed error
	found := make(chan struct{})
	go func() {
		defer close(found)
		mapping, failed = v.mapper.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}()
	if err := v.waitDone(ctx, found, nil); err != nil {
		return kind, err
	}
	if failed != nil {
		return kind, failed
	}
	return informers.InformerKind{
		GVK: gvk, Plural: mapping.Resource.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}

// removeHandlers takes the handlers off when the runnables end. Reads go on, and the handlers that the client needs for them.
func (v *scopedCache) removeHandlers() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.isMuted = true
	for _, u := range v.informers {
		for _, r := range slices.Clone(u.handlers) {
			if !r.ofClient {
				u.removeHandler(r)
			}
		}
	}
}

// close removes all informers from the scope. It does not wait for handlers that run.
func (v *scopedCache) close() {
	v.mu.Lock()
	v.isClosed, v.isMuted = true, true
	for _, u := range v.informers {
		u.removeAll()
	}
	unfollow := v.stopWatching
	// stopWatching waits for the detector; readers that the end of the scope wakes must not wait with it.
	v.mu.Unlock()
	unfollow()
}

// waitStopped returns when nothing of a closed cache runs any more.
func (v *scopedCache) waitStopped() {
	v.running.Wait()
	v.mu.Lock()
	doors := slices.Clone(v.gates)
	v.mu.Unlock()
	for _, d := range doors {
		<-d.drained
	}
}
