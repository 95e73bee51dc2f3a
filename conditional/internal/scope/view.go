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

// view is the cache of one scope: what the scope uses of informers that it shares with others. It never polls, and
// waits for the informers and handlers of its own scope only; controller-runtime's own start of a controller costs
// 100 ms per poll.
type view struct {
	life    context.Context
	scheme  *runtime.Scheme
	hub     *serverstate.Hub
	outer   *managercache.Cache // nil when the manager was made without ManagerOptions
	strict  bool                // reads make no informer
	terms   informers.Terms
	mapper  *mapper
	fail    func(error) // ends the scope
	renew   func()      // makes the scope's clients forget where kinds are
	started chan struct{}
	running sync.WaitGroup // the goroutine that follows the optional kinds

	mu       sync.Mutex
	uses     map[slot]*use
	optional map[schema.GroupVersionKind]*presence // the map itself never changes
	doors    []*door                               // of all handlers that may still run
	unfollow func()
	muted    bool // no handlers any more
	closed   bool
}

// slot is where a scope has its one use of a kind in one form.
type slot struct {
	gvk  schema.GroupVersionKind
	form informers.Form
}

func newView(life context.Context, cl cluster.Cluster, h *serverstate.Hub, o Options) *view {
	v := &view{
		life: life, scheme: cl.GetScheme(), hub: h, outer: managercache.Of(cl.GetCache()),
		terms:    informers.Terms{Keep: o.KeepInformers, Look: o.Look},
		started:  make(chan struct{}),
		uses:     map[slot]*use{},
		optional: map[schema.GroupVersionKind]*presence{},
		unfollow: func() {},
	}
	v.strict = v.outer.Settings().Cache.ReaderFailOnMissingInformer
	for _, gvk := range o.Optional {
		v.optional[gvk] = &presence{settled: newLatch()}
	}
	return v
}

// Outer returns the cache of the outer manager, so that groups in a scope inherit, too.
func (v *view) Outer() *managercache.Cache { return v.outer }

// Start lets reads begin, and returns when ctx ends. Informers run from their first use on.
func (v *view) Start(ctx context.Context) error {
	close(v.started)
	<-ctx.Done()
	return nil
}

// WaitForCacheSync returns true when all informers and handlers of the scope have synced, false when ctx or the
// scope ends before. That it waits for handlers too spares a controller to poll for its own.
func (v *view) WaitForCacheSync(ctx context.Context) bool { return v.waitFor(ctx, (*use).pending) }

// waitForInformers leaves out the handlers: those that setup adds may wait for a runnable that has yet to start.
func (v *view) waitForInformers(ctx context.Context) bool {
	return v.waitFor(ctx, func(u *use) []awaited { return u.pending()[:1] })
}

func (v *view) waitFor(ctx context.Context, what func(*use) []awaited) bool {
	if v.await(ctx, v.started, nil) != nil {
		return false
	}
	v.mu.Lock()
	var pending []awaited
	for _, u := range v.uses {
		pending = append(pending, what(u)...)
	}
	v.mu.Unlock()
	for _, p := range pending {
		if err := v.await(ctx, p.done, p.gone); err != nil && !errors.Is(err, errGone) {
			return false
		}
	}
	return v.life.Err() == nil
}

// awaited is a sync that counts until it is done, or until what has to sync is gone.
type awaited struct{ done, gone <-chan struct{} }

// await returns nil when done is closed, ErrClosed when the scope ends before, errGone for gone, or the error of ctx.
func (v *view) await(ctx context.Context, done, gone <-chan struct{}) error {
	if isClosed(done) {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-v.life.Done():
		return ErrClosed
	case <-gone:
		return errGone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// slotOf finds the place of an object or of a list.
func (v *view) slotOf(obj runtime.Object) (slot, error) {
	gvk, form, err := informers.Identify(obj, v.scheme)
	return slot{gvk, form}, err
}

// known returns what there is to know of a kind without a request. It returns an error for an optional kind that is
// absent.
func (v *view) known(gvk schema.GroupVersionKind) (kind informers.Kind, known bool, err error) {
	if p := v.optional[gvk]; p != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		if p.kind != nil {
			return *p.kind, true, nil
		}
		if p.absent {
			return kind, false, noMatch(gvk)
		}
	}
	if verdict, ok := v.hub.Detector.Known(gvk); ok && verdict.Presence == detect.Served {
		return kindOf(gvk, verdict), true, nil
	}
	return kind, false, nil
}

func kindOf(gvk schema.GroupVersionKind, verdict detect.Verdict) informers.Kind {
	return informers.Kind{GVK: gvk, Plural: verdict.Plural, Namespaced: verdict.Namespaced, UID: verdict.UID}
}

func noMatch(gvk schema.GroupVersionKind) error {
	return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// find returns what an informer of the kind has to watch, but for the form; a kind that the detector does not know is
// looked up.
func (v *view) find(ctx context.Context, gvk schema.GroupVersionKind) (informers.Kind, error) {
	kind, known, err := v.known(gvk)
	if known || err != nil {
		return kind, err
	}
	if kind, err = v.lookUp(ctx, gvk); err != nil {
		return kind, fmt.Errorf("find the resource of %s: %w", gvk, err)
	}
	return kind, nil
}

// lookUp asks discovery, which takes no context, without waiting for it longer than for ctx and the scope.
func (v *view) lookUp(ctx context.Context, gvk schema.GroupVersionKind) (kind informers.Kind, err error) {
	var mapping *meta.RESTMapping
	var failed error
	found := make(chan struct{})
	go func() {
		defer close(found)
		mapping, failed = v.mapper.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}()
	if err := v.await(ctx, found, nil); err != nil {
		return kind, err
	}
	if failed != nil {
		return kind, failed
	}
	return informers.Kind{
		GVK: gvk, Plural: mapping.Resource.Resource, Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}, nil
}

// mute takes the handlers off: the runnables are ending. Reads go on, and what the client needs for them.
func (v *view) mute() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.muted = true
	for _, u := range v.uses {
		for _, r := range slices.Clone(u.handlers) {
			if !r.reading {
				u.remove(r)
			}
		}
	}
}

// close ends all uses. It does not wait for handlers that run.
func (v *view) close() {
	v.mu.Lock()
	v.closed, v.muted = true, true
	for _, u := range v.uses {
		u.end()
	}
	unfollow := v.unfollow
	v.mu.Unlock()
	unfollow()
}

// drained returns when nothing of a closed view runs any more.
func (v *view) drained() {
	v.running.Wait()
	v.mu.Lock()
	doors := slices.Clone(v.doors)
	v.mu.Unlock()
	for _, d := range doors {
		<-d.empty
	}
}
