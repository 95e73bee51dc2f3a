// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// pooledInformer is one informer in a cache of its own. What changes in it is guarded by the pool.
type pooledInformer struct {
	kind     InformerKind
	cache    cache.Cache
	informer cache.Informer
	cancel   context.CancelFunc
	done     chan struct{} // closed when it has stopped

	leases int
}

// startInformer runs a new informer.
func (p *Pool) startInformer(ctx context.Context, k InformerKind) (*pooledInformer, error) {
	obj, err := k.NewObject(p.opts.Scheme)
	if err != nil {
		return nil, err
	}
	e := &pooledInformer{kind: k, done: make(chan struct{})}
	if e.cache, err = cache.New(p.cfg, p.cacheOptions(k)); err != nil {
		return nil, err
	}
	// The informer outlives the call, and perhaps the scope, that starts it.
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if e.informer, err = e.cache.GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
		e.cancel()
		return nil, err
	}
	p.active.Add(1)
	go func() {
		defer close(e.done)
		defer p.active.Add(-1)
		_ = e.cache.Start(ctx) // It fails only when it is called twice.
	}()
	return e, nil
}
