// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Add takes a runnable: it starts with Run, or at once while Run runs.
func (m *Manager) Add(r manager.Runnable) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.isDraining || m.lifetime.Err() != nil:
		return ErrClosed
	case m.runContext == nil:
		m.queued = append(m.queued, r)
	default:
		m.launchRunnable(r)
	}
	return nil
}

// Start always fails: the group runs its scope.
func (m *Manager) Start(context.Context) error {
	return errors.New("a conditional controller's setup must not start the manager it was given: add runnables to it and return")
}

// Run starts the cache, then the runnables, calls up, and returns after all have returned, handlers of events
// included: with nil when ctx ended, or with the first runnable's error, before which it calls broke. The scope is
// closed then.
func (m *Manager) Run(ctx context.Context, up, broke func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cacheDone := make(chan struct{})
	go func() {
		defer close(cacheDone)
		m.reportFailure(m.cache.Start(m.lifetime))
	}()
	err := m.waitForEarlySync(ctx)
	if err == nil && ctx.Err() == nil {
		m.launchQueued(ctx)
		up()
		select {
		case <-ctx.Done():
		case err = <-m.failed:
			broke()
		}
	}
	cancel()
	m.mu.Lock()
	m.isDraining = true
	m.mu.Unlock()
	// Handlers go before the runnables have ended: an event must not reach the queue of a controller that has returned.
	m.cache.removeHandlers()
	m.running.Wait()
	m.End()
	<-cacheDone
	return err
}

// End closes the scope and returns when no handler of events runs any more. A handler must not call it.
func (m *Manager) End() {
	m.Close()
	m.cache.waitStopped()
}

// waitForEarlySync waits for the informers that setup asked for, as the outer manager would.
func (m *Manager) waitForEarlySync(ctx context.Context) error {
	limit := m.GetControllerOptions().CacheSyncTimeout
	// This is controller-runtime's default.
	if limit <= 0 {
		limit = 2 * time.Minute
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !m.cache.waitForInformers(timed) && ctx.Err() == nil && m.lifetime.Err() == nil {
		return fmt.Errorf("an informer that setup asked for has not synced within %s: check that its kind is served and may be listed and watched", limit)
	}
	return nil
}

func (m *Manager) launchQueued(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runContext = ctx
	for _, r := range m.queued {
		m.launchRunnable(r)
	}
	m.queued = nil
}

// launchRunnable is called with the lock held, so that Run cannot wait while a runnable is being added.
func (m *Manager) launchRunnable(r manager.Runnable) {
	ctx := m.runContext
	m.running.Go(func() {
		err := r.Start(ctx)
		// An error after the stop is how the runnable ends and not why.
		if ctx.Err() == nil {
			m.reportFailure(err)
		} else if err != nil && !errors.Is(err, context.Canceled) {
			m.GetLogger().Error(err, "runnable of a stopped conditional controller returned an error")
		}
	})
}

func (m *Manager) reportFailure(err error) {
	if err == nil {
		return
	}
	select {
	case m.failed <- err:
	default:
	}
}
