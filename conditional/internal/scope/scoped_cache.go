// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// scopedCache is the cache of one scope. It leases informers that it shares with other scopes. It never polls, and
// waits only for the informers and handlers of its own scope. In contrast, controller-runtime polls every 100 ms when
// it starts a controller.
type scopedCache struct {
	lifetime          context.Context
	scheme            *runtime.Scheme
	state             *process.SharedState
	pool              *informers.Pool          // pool is the pool of the state, or a separate one
	managerCache      *delegatingmanager.Cache // managerCache is the manager's cache; nil for a cluster without a manager
	readsNeedInformer bool                     // readsNeedInformer is true if reads do not create informers
	mapper            *scopedMapper
	reportError       func(error) // reportError ends the scope
	refreshClients    func()      // refreshClients makes the scope's clients discard cached resources of kinds
	started           chan struct{}
	running           sync.WaitGroup // running waits for the goroutine that follows the optional kinds

	mu           sync.Mutex
	informers    map[informers.InformerKind]*scopedInformer
	indexes      map[informers.InformerKind][]*informers.FieldIndex // indexes were requested by the scope
	optional     map[schema.GroupVersionKind]*optionalKind          // optional is a map that never changes
	gates        []*eventGate                                       // gates holds the gates of all handlers that may still run
	stopWatching func()
	isMuted      bool // isMuted is true if no more handlers may be added
	isClosed     bool
}

func newScopedCache(life context.Context, cl cluster.Cluster, h *process.SharedState, o Options) *scopedCache {
	v := &scopedCache{
		lifetime: life, scheme: cl.GetScheme(), state: h, managerCache: delegatingmanager.FromCache(cl.GetCache()),
		started:      make(chan struct{}),
		informers:    map[informers.InformerKind]*scopedInformer{},
		indexes:      map[informers.InformerKind][]*informers.FieldIndex{},
		optional:     map[schema.GroupVersionKind]*optionalKind{},
		stopWatching: func() {},
	}
	v.pool = h.Informers
	if o.CacheOptions != nil {
		v.pool = h.Informers.WithOptions(o.CacheOptions)
	}
	v.readsNeedInformer = v.pool.ReadsNeedInformer()
	for _, gvk := range o.Optional.Kinds {
		v.optional[gvk] = &optionalKind{settled: newLatch()}
	}
	return v
}

// OuterCache returns the cache of the outer manager, so groups inside a scope inherit from it, too.
func (v *scopedCache) OuterCache() *delegatingmanager.Cache { return v.managerCache }

// allowReads allows reads. Informers do not wait for it: they start at their first use.
func (v *scopedCache) allowReads() { close(v.started) }

// Start always fails, because the scope starts its cache.
func (v *scopedCache) Start(context.Context) error {
	return errors.New("a conditional controller's setup must not start the cache it was given: the group does")
}

// WaitForCacheSync returns true when all informers and handlers of the scope have synced, and false if ctx is cancelled
// or the scope ends first. It also waits for handlers, so controllers need not poll for their own.
func (v *scopedCache) WaitForCacheSync(ctx context.Context) bool {
	return v.waitForSyncs(ctx, func(u *scopedInformer) []*handlerRegistration { return u.handlers })
}

// waitForInformers does not wait for the handlers, because handlers that setup adds may wait for a runnable that was
// not started yet.
func (v *scopedCache) waitForInformers(ctx context.Context) bool {
	return v.waitForSyncs(ctx, func(*scopedInformer) []*handlerRegistration { return nil })
}

func (v *scopedCache) waitForSyncs(ctx context.Context, handlersOf func(*scopedInformer) []*handlerRegistration) bool {
	if v.waitDone(ctx, v.started, nil) != nil {
		return false
	}
	v.mu.Lock()
	var pending []*closedOnceLatch
	for _, u := range v.informers {
		pending = append(pending, u.synced)
		for _, r := range handlersOf(u) {
			pending = append(pending, r.synced)
		}
	}
	v.mu.Unlock()
	for _, p := range pending {
		if v.waitDone(ctx, p.opened, nil) != nil {
			return false
		}
	}
	return v.lifetime.Err() == nil
}

// waitDone returns nil when done or gone is closed, ErrClosed if the scope ends first, or the error of ctx.
func (v *scopedCache) waitDone(ctx context.Context, done, gone <-chan struct{}) error {
	if isClosed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-gone:
		return nil
	case <-v.lifetime.Done():
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// knownKind returns the facts about a kind that are known without a request. For an absent optional kind it returns an
// error.
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
	// The detector has verdicts about the kinds of conditions, and therefore about most kinds that a group uses.
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

// findKind returns the InformerKind of a kind, without its form. A kind that the detector does not follow is looked up.
func (v *scopedCache) findKind(ctx context.Context, gvk schema.GroupVersionKind) (informers.InformerKind, error) {
	kind, known, err := v.knownKind(gvk)
	if known || err != nil {
		return kind, err
	}
	// A mapper does not take a context, so a goroutine calls it. Only the wait ends with ctx or the scope.
	var asked informers.InformerKind
	var failed error
	found := make(chan struct{})
	go func() {
		defer close(found)
		asked, failed = v.askForKind(gvk)
	}()
	if err = v.waitDone(ctx, found, nil); err == nil {
		kind, err = asked, failed
	}
	if err != nil {
		err = fmt.Errorf("find the resource of %s: %w", gvk, err)
		if ctx.Err() != nil { // As in any cache, a wait that the caller cancels is reported as a timeout.
			err = k8serrors.NewTimeoutError(err.Error(), 0)
		}
	}
	return kind, err
}

// askForKind queries discovery for the kind's group version. If it does not find the kind, askForKind asks the scope's
// mapper, which queries all group versions.
func (v *scopedCache) askForKind(gvk schema.GroupVersionKind) (informers.InformerKind, error) {
	if verdict, err := v.state.Detector.LookUp(v.lifetime, gvk); err == nil && verdict.Presence == detect.Served {
		return kindFromVerdict(gvk, verdict), nil
	}
	mapping, err := v.mapper.RefreshableMapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return informers.InformerKind{}, err
	}
	return informers.InformerKind{
		GVK: gvk, Plural: mapping.Resource.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}

// lostInformers returns the informers whose kind is not optional and was deleted or replaced.
func (v *scopedCache) lostInformers() (lost []*scopedInformer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for s, u := range v.informers {
		verdict, known := v.state.Detector.KnownVerdict(s.GVK)
		if u.optional == nil && u.lease != nil && known && u.lease.Kind().IsLost(verdict.Presence == detect.Absent, verdict.UID) {
			lost = append(lost, u)
		}
	}
	return lost
}

// deletedInformers returns the lost informers of kinds whose objects were deleted. If only a version is no longer
// served, the objects still exist.
func (v *scopedCache) deletedInformers() []*scopedInformer {
	return slices.DeleteFunc(v.lostInformers(), func(u *scopedInformer) bool {
		verdict, _ := v.state.Detector.KnownVerdict(u.key.GVK)
		return verdict.Presence == detect.Absent && !verdict.Deleted
	})
}

// hasDeliveredDeletions reports whether the handlers have received the deletion of every object of the kinds whose CRD
// was deleted.
func (v *scopedCache) hasDeliveredDeletions() bool {
	deleted := v.deletedInformers()
	v.mu.Lock()
	defer v.mu.Unlock()
	return !slices.ContainsFunc(deleted, func(u *scopedInformer) bool {
		return slices.ContainsFunc(u.handlers, (*handlerRegistration).knowsObjects)
	})
}

// missedDeletions contains objects that were deleted with their CRD while their watch was reconnecting, so no event and
// no list reports the deletion.
type missedDeletions struct {
	registration *handlerRegistration
	objects      []any
}

// dropDeletedObjects makes reads of kinds whose CRD was deleted return no objects, and returns the deletions that the
// handlers have missed.
func (v *scopedCache) dropDeletedObjects() (missed []missedDeletions) {
	deleted := v.deletedInformers()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, u := range deleted {
		u.isEmptied = true
		store, ok := u.lease.Informer().(toolscache.SharedIndexInformer)
		if !ok {
			continue // A cache for several namespaces has several stores.
		}
		for _, r := range u.handlers {
			if !r.ofClient && r.knowsObjects() {
				missed = append(missed, missedDeletions{r, store.GetStore().List()})
			}
		}
	}
	return missed
}

// deliver notifies the handler after it has handled earlier events. The handler must have been removed from its
// informer.
func (d missedDeletions) deliver(ctx context.Context) {
	select {
	case <-d.registration.gate.drained:
	case <-ctx.Done():
		return
	}
	for _, obj := range d.objects {
		if key, err := toolscache.MetaNamespaceKeyFunc(obj); err == nil {
			d.registration.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj})
		}
	}
}

// removeHandlers removes the handlers when the runnables end. Reads are still possible, and the handlers that the
// client needs for them remain.
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

// close stops all informers of the scope. It does not wait for running handlers.
func (v *scopedCache) close() {
	v.mu.Lock()
	v.isClosed, v.isMuted = true, true
	for _, u := range v.informers {
		u.removeAll()
	}
	unfollow := v.stopWatching
	// stopWatching waits for the detector. Readers that are woken by the end of the scope must not wait for the lock in
	// the meantime.
	v.mu.Unlock()
	unfollow()
}

// waitStopped returns when all parts of a closed cache have stopped.
func (v *scopedCache) waitStopped() {
	v.running.Wait()
	v.mu.Lock()
	doors := slices.Clone(v.gates)
	v.mu.Unlock()
	for _, d := range doors {
		<-d.drained
	}
}

// Get reads one object. If the scope closes in the meantime, it returns ErrClosed instead of waiting for an informer
// that can no longer sync. For an absent optional kind it returns a meta.NoKindMatchError.
func (v *scopedCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	reader, err := v.syncedReader(ctx, obj)
	if err != nil {
		return err
	}
	return reader.Get(ctx, key, obj, opts...)
}

func (v *scopedCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	reader, err := v.syncedReader(ctx, list)
	if err != nil {
		return err
	}
	return reader.List(ctx, list, opts...)
}

// syncedReader returns the reader of the informer for obj, after the informer has synced.
func (v *scopedCache) syncedReader(ctx context.Context, obj runtime.Object) (client.Reader, error) {
	if v.lifetime.Err() != nil {
		return nil, ErrClosed
	}
	// controller-runtime's cache also rejects reads before its start. In setup they would wait forever.
	if !isClosed(v.started) {
		return nil, &cache.ErrCacheNotStarted{}
	}
	s, err := informers.IdentifyObject(obj, v.scheme)
	if err != nil {
		return nil, err
	}
	if err := v.requirePresent(ctx, s); err != nil {
		return nil, err
	}
	u, err := v.readableInformer(ctx, s)
	if err != nil {
		return nil, err
	}
	lease, parted := u.currentLease()
	if lease == nil {
		return nil, v.newUnreadableError(s)
	}
	if u.hasNoObjects() {
		return emptyReader{lease.Kind()}, nil
	}
	if err := v.waitDone(ctx, lease.Informer().HasSyncedChecker().Done(), parted); err != nil {
		return nil, newUnsyncedError(s, err)
	}
	if !lease.Informer().HasSynced() { // The informer ended before it had synced.
		return nil, v.newUnreadableError(s)
	}
	return lease.Reader(), nil
}

// emptyReader reads from a kind that has no objects.
type emptyReader struct{ kind informers.InformerKind }

func (r emptyReader) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return k8serrors.NewNotFound(r.kind.RESTMapping().Resource.GroupResource(), key.Name)
}

func (emptyReader) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return meta.SetList(list, nil)
}

// readableInformer returns the informer to read from. It creates one, unless the manager's cache.Options forbid reads
// to create informers.
func (v *scopedCache) readableInformer(ctx context.Context, s informers.InformerKind) (*scopedInformer, error) {
	if !v.readsNeedInformer {
		return v.useInformer(ctx, s)
	}
	u, err := v.existingInformer(s)
	if u == nil && err == nil {
		err = &cache.ErrResourceNotCached{GVK: s.GVK}
	}
	return u, err
}

// requirePresent returns an error for an absent optional kind, so that a read does not create an informer.
func (v *scopedCache) requirePresent(ctx context.Context, s informers.InformerKind) error {
	p := v.optional[s.GVK]
	if p == nil {
		return nil
	}
	if err := v.waitDone(ctx, p.settled.opened, nil); err != nil {
		return newUnsyncedError(s, err)
	}
	v.mu.Lock()
	there := p.kind != nil
	v.mu.Unlock()
	if there {
		return nil
	}
	return v.newUnreadableError(s)
}

func (u *scopedInformer) hasNoObjects() bool {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.isEmptied
}

func (u *scopedInformer) currentLease() (*informers.Lease, <-chan struct{}) {
	u.cache.mu.Lock()
	defer u.cache.mu.Unlock()
	return u.lease, u.leaseEnded
}

func (v *scopedCache) newUnreadableError(s informers.InformerKind) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.optional[s.GVK]
	switch {
	case v.isClosed:
		return ErrClosed
	case p == nil || p.kind != nil:
		return fmt.Errorf("read %s: %w during the read: retry the read", s.GVK, errInformerRemoved)
	case p.isAbsent:
		return newNoMatchError(s.GVK)
	}
	return fmt.Errorf("read %s: cannot determine whether the API server serves the kind: %s: "+
		"retry the read later", s.GVK, p.doubt)
}

func newUnsyncedError(s informers.InformerKind, err error) error {
	if errors.Is(err, ErrClosed) {
		return err
	}
	return k8serrors.NewTimeoutError(fmt.Sprintf("the informer of %s has not synced: %v: check that it may be listed and watched", s.GVK, err), 0)
}

// scopedMapper maps kinds that the detector follows, and queries discovery only for others.
type scopedMapper struct {
	*delegatingmanager.RefreshableMapper
	cache *scopedCache
}

func (v *scopedCache) newMapper(cfg *rest.Config, hc *http.Client) (*scopedMapper, error) {
	open := v.managerCache.ScopeSettings().NewMapper
	lookUp, err := delegatingmanager.NewRefreshableMapper(func() (meta.RESTMapper, error) { return open(cfg, hc) })
	return &scopedMapper{lookUp, v}, err
}

func (m *scopedMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	for _, version := range versions {
		kind, known, err := m.cache.knownKind(gk.WithVersion(version))
		if known {
			return kind.RESTMapping(), nil
		}
		if err != nil && len(versions) == 1 {
			return nil, err
		}
	}
	return m.RefreshableMapper.RESTMapping(gk, versions...)
}

// NewCache returns a cache like that of a scope, but without a manager, for a source whose kinds may appear and
// disappear in a cluster. stop closes the cache, and returns when all handlers have returned.
func NewCache(cl cluster.Cluster, h *process.SharedState, o Options) (_ cache.Cache, stop func(), err error) {
	life, end := context.WithCancel(context.Background())
	v := newScopedCache(life, cl, h, o)
	stop = func() { end(); v.close(); v.waitStopped() }
	if v.mapper, err = v.newMapper(cl.GetConfig(), cl.GetHTTPClient()); err != nil {
		end()
		return nil, nil, fmt.Errorf("prepare the look-up of kinds: %w", err)
	}
	v.reportError = func(err error) {
		if err != nil {
			h.Log.Error(err, "kind is not watched")
		}
	}
	v.refreshClients = func() { v.reportError(v.mapper.Refresh()) }
	v.allowReads() // There is no manager that starts this cache.
	v.watchOptionalKinds(h.Detector, o)
	return v, stop, nil
}

// optionalKind is the last state of an optional kind. The cache's lock guards it.
type optionalKind struct {
	settled  *closedOnceLatch        // settled opens with the first verdict
	kind     *informers.InformerKind // kind is set while it is served; an unclear verdict does not change it
	isAbsent bool
	doubt    string
}

// watchOptionalKinds subscribes to the optional kinds. A goroutine of the scope applies the verdicts.
func (v *scopedCache) watchOptionalKinds(d *detect.Detector, o Options) {
	if len(o.Optional.Kinds) == 0 {
		return
	}
	reports, cancel := d.Subscribe(o.Optional, nil)
	v.stopWatching = cancel
	v.running.Go(func() {
		for verdicts := range reports {
			v.applyVerdicts(o.Optional.Kinds, verdicts)
		}
	})
}

func (v *scopedCache) applyVerdicts(kinds []schema.GroupVersionKind, verdicts []detect.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return
	}
	for i, gvk := range kinds {
		moved := v.optional[gvk].noteVerdict(gvk, verdicts[i])
		if moved {
			v.refreshClients() // Refresh before any event, because a reconciler must find the kind with its new scope and plural.
		}
		for s, u := range v.informers {
			if s.GVK != gvk {
				continue
			}
			if moved {
				v.reportError(u.reattachLease())
			}
			u.markAbsentSynced()
		}
	}
}

// noteVerdict records a verdict and reports whether the kind appeared, disappeared or was replaced.
func (p *optionalKind) noteVerdict(gvk schema.GroupVersionKind, verdict detect.Verdict) (moved bool) {
	switch verdict.Presence {
	case detect.Served:
		kind := kindFromVerdict(gvk, verdict)
		moved = p.kind == nil || *p.kind != kind
		p.kind, p.isAbsent = &kind, false
	case detect.Absent:
		moved = !p.isAbsent
		p.kind, p.isAbsent = nil, true
	case detect.Unclear:
		p.doubt = verdict.Message
		if verdict.Reason == detect.ReasonDetecting {
			return false
		}
	}
	p.settled.openLatch()
	return moved
}

// reattachLease switches the informer of an optional kind to the kind as it is served now.
func (u *scopedInformer) reattachLease() error {
	u.detachLease()
	if u.optional.kind == nil {
		return nil
	}
	return u.attachLease(*u.optional.kind)
}

type closedOnceLatch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *closedOnceLatch { return &closedOnceLatch{opened: make(chan struct{})} }

func (l *closedOnceLatch) openLatch() { l.once.Do(func() { close(l.opened) }) }

func (l *closedOnceLatch) isOpen() bool { return isClosed(l.opened) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type namedLatch struct {
	*closedOnceLatch
	name string
}

func (n namedLatch) Name() string { return n.name }

func (n namedLatch) Done() <-chan struct{} { return n.opened }
