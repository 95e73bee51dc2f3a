// SPDX-License-Identifier: Apache-2.0

// Package informers shares the informers of one API server between scopes. An informer runs while it is leased; each has a cache of its own, so that none waits for another's sync and each can end for itself.
package informers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// Detector reports whether the kind of an idle informer is still served.
type Detector interface {
	Subscribe(i detect.Interest, report func([]detect.Verdict)) (cancel func(), err error)
}

// LeaseTerms are how an informer is leased.
type LeaseTerms struct {
	// Private asks for an informer of the lease's own, which may be indexed.
	Private bool
	// Keep is how long a shared informer stays after its last lease, unless its kind goes or changes.
	Keep time.Duration
	// Interest is how the detector may watch the kind of an informer that is kept; its Kinds are not used.
	Interest detect.Interest
}

// Pool has the informers of one API server.
type Pool struct {
	cfg      *rest.Config
	opts     cache.Options
	detector Detector
	active   atomic.Int64
	keepers  sync.WaitGroup // goroutines of kept informers

	mu     sync.Mutex
	shared map[InformerKind]*pooledInformer
	leases int
	closed bool
}

// New returns an empty pool. Of opts, the HTTP client and the scheme must be set; the mapper is not used, and of
// ByObject an informer gets what is for its kind.
func New(cfg *rest.Config, opts cache.Options, detector Detector) *Pool {
	return &Pool{cfg: cfg, opts: opts, detector: detector, shared: map[InformerKind]*pooledInformer{}}
}

// InformerCount counts those that run, kept ones and those that have yet to stop included.
func (p *Pool) InformerCount() int { return int(p.active.Load()) }

// LeaseCount counts the leases that have not been released.
func (p *Pool) LeaseCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases
}

// Lease returns a share of the kind's informer, which it starts when there is none. It makes no request and does not
// wait for the sync. The informer outlives ctx.
func (p *Pool) Lease(ctx context.Context, k InformerKind, terms LeaseTerms) (*Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.shared[k]
	if terms.Private || e == nil {
		var err error
		if e, err = p.startInformer(ctx, k); err != nil {
			return nil, fmt.Errorf("start an informer of %s: %w", k.GVK, err)
		}
		if !terms.Private {
			p.shared[k] = e
		}
	}
	// An informer that was only kept must not be stopped by its timer any more.
	e.endIdle()
	e.leases++
	p.leases++
	return &Lease{pool: p, entry: e, terms: terms}, nil
}

// cacheOptions are those of a cache that never needs anything but this one kind.
func (p *Pool) cacheOptions(k InformerKind) cache.Options {
	opts := p.opts
	opts.Mapper = k.newRESTMapper()
	opts.ReaderFailOnMissingInformer = false
	opts.ByObject = nil
	for obj, by := range p.opts.ByObject {
		if gvk, err := apiutil.GVKForObject(obj, opts.Scheme); err == nil && gvk == k.GVK {
			opts.ByObject = map[client.Object]cache.ByObject{obj: by}
		}
	}
	// From these options controller-runtime may make a cache of several namespaces, and what is stoppable suits one, too.
	maybeMany := len(opts.DefaultNamespaces) > 0 || len(opts.ByObject) > 0
	opts.NewInformer = withWatchDraining(opts.NewInformer, maybeMany)
	return opts
}

// returnLease takes one lease back; the informer stops with the last of them, unless it is kept.
func (p *Pool) returnLease(l *Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := l.entry
	p.leases--
	e.leases--
	// The longest time counts, also that of a lease that was returned before others.
	if !l.terms.Private && l.terms.Keep > 0 {
		e.extendKeep(time.Now().Add(l.terms.Keep), l.terms.Interest)
	}
	if e.leases > 0 {
		return
	}
	if remaining := time.Until(e.keepUntil); remaining > 0 && !p.closed {
		p.keepIdle(e, remaining)
		return
	}
	p.stopInformer(e)
}

// stopInformer ends an informer without leases.
func (p *Pool) stopInformer(e *pooledInformer) {
	if p.shared[e.kind] == e {
		delete(p.shared, e.kind)
	}
	e.endIdle()
	e.cancel()
}

// Close stops the informers that are only kept, and keeps none from now on. It returns when the pool has no
// subscription at the detector any more.
func (p *Pool) Close() {
	// Deferred before the unlock, and so called after it: the keepers take the lock when they end.
	defer p.keepers.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, e := range p.shared {
		if e.leases == 0 {
			p.stopInformer(e)
		}
	}
}
