// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

// ending is an informer for caches of several namespaces. They leave a goroutine per informer and per handler, which
// waits until it has synced; so an ending informer also says that it has when it stops, or the handler is removed,
// before. Only HasSynced tells the truth then.
type ending struct {
	toolscache.SharedIndexInformer
	settled chan struct{} // closed by the sync, or by the end before it
	over    chan struct{} // closed by the end
}

func newEnding(inner toolscache.SharedIndexInformer) *ending {
	return &ending{inner, make(chan struct{}), make(chan struct{})}
}

// RunWithContext runs the informer.
func (e *ending) RunWithContext(ctx context.Context) {
	context.AfterFunc(ctx, func() { close(e.over) })
	go settle(e.settled, e.SharedIndexInformer.HasSyncedChecker(), e.over, nil)
	e.SharedIndexInformer.RunWithContext(ctx)
}

func settle(settled chan<- struct{}, synced toolscache.DoneChecker, over, removed <-chan struct{}) {
	select {
	case <-synced.Done():
	case <-over:
	case <-removed:
	}
	close(settled)
}

// HasSyncedChecker is done by the sync, or by the end before it.
func (e *ending) HasSyncedChecker() toolscache.DoneChecker {
	return settled{e.SharedIndexInformer.HasSyncedChecker(), e.settled}
}

// AddEventHandler adds a handler.
func (e *ending) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return e.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler with a period of its own.
func (e *ending) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return e.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions adds a handler with options.
func (e *ending) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	inner, err := e.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	if err != nil {
		return nil, err
	}
	r := &endingRegistration{ResourceEventHandlerRegistration: inner, settled: make(chan struct{}), removed: make(chan struct{})}
	go settle(r.settled, inner.HasSyncedChecker(), e.over, r.removed)
	return r, nil
}

// RemoveEventHandler removes a handler.
func (e *ending) RemoveEventHandler(h toolscache.ResourceEventHandlerRegistration) error {
	r, ok := h.(*endingRegistration)
	if !ok {
		return fmt.Errorf("expected a registration of this informer, found %T: pass what AddEventHandler returned", h)
	}
	r.once.Do(func() { close(r.removed) })
	return e.SharedIndexInformer.RemoveEventHandler(r.ResourceEventHandlerRegistration)
}

type endingRegistration struct {
	toolscache.ResourceEventHandlerRegistration
	settled, removed chan struct{}
	once             sync.Once
}

// HasSyncedChecker is done by the sync, or by the end or the removal before it.
func (r *endingRegistration) HasSyncedChecker() toolscache.DoneChecker {
	return settled{r.ResourceEventHandlerRegistration.HasSyncedChecker(), r.settled}
}

// settled has the name of one wait and the end of another.
type settled struct {
	toolscache.DoneChecker
	done <-chan struct{}
}

// Done is closed when there is nothing to wait for any more.
func (s settled) Done() <-chan struct{} { return s.done }
