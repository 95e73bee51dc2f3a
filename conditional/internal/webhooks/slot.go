// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
)

// ErrLeft is the answer to the claim of a tenant that has left.
var ErrLeft = errors.New("the activation that registers this webhook has ended")

// slot answers on one path of the outer server for as long as that lives.
type slot struct{ now atomic.Pointer[occupant] }

// occupant does not change; a slot without tenant is answered by asleep.
type occupant struct {
	tenant *Tenant
	awake  http.Handler
	asleep http.Handler
}

func (s *slot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := s.now.Load()
	if now.tenant == nil || !now.tenant.enter() {
		now.asleep.ServeHTTP(w, r)
		return
	}
	defer now.tenant.requests.Done()
	now.awake.ServeHTTP(w, r)
}

// occupy runs under the multiplexer's lock.
func (s *slot) occupy(path string, handler http.Handler, by *Tenant) error {
	if old := s.now.Load(); old != nil && old.tenant != nil && old.tenant.present() {
		return fmt.Errorf("expected webhook path %s to be free, found it taken by the running conditional group %q: give one of the two "+
			"another path (WithValidatorCustomPath, WithDefaulterCustomPath), or set both webhooks up in one group", path, old.tenant.Group)
	}
	mine := &occupant{tenant: by, awake: handler, asleep: dormant(path, by, handler)}
	s.now.Store(mine)
	return by.onLeave(func() { s.now.CompareAndSwap(mine, &occupant{asleep: mine.asleep}) })
}

// Tenant is one activation of a group.
type Tenant struct {
	Group   string          // its name, for messages
	Dormant Policy          // of its paths after it has left
	Ended   <-chan struct{} // closes with the scope, at the latest

	requests sync.WaitGroup // that its handlers are answering
	mu       sync.Mutex
	left     bool
	vacate   []func()
}

// Leave makes the tenant's paths dormant and drops its handlers. Requests in flight go on.
func (t *Tenant) Leave() {
	t.mu.Lock()
	vacate := t.vacate
	t.left, t.vacate = true, nil
	t.mu.Unlock()
	for _, v := range vacate {
		v()
	}
}

// Wait returns after the last request in flight; call it after Leave.
func (t *Tenant) Wait() { t.requests.Wait() }

func (t *Tenant) onLeave(vacate func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left {
		vacate()
		return ErrLeft
	}
	t.vacate = append(t.vacate, vacate)
	return nil
}

// enter reports whether a request may be handled, and counts it if so.
func (t *Tenant) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.goneLocked() {
		return false
	}
	t.requests.Add(1)
	return true
}

func (t *Tenant) present() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.goneLocked()
}

// goneLocked sees the end of the scope before anybody has called Leave.
func (t *Tenant) goneLocked() bool {
	select {
	case <-t.Ended:
		return true
	default:
		return t.left
	}
}
