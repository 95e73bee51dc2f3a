// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
)

// ErrReleased is the answer to the claim of an owner that has released its paths.
var ErrReleased = errors.New("the activation that registers this webhook has ended")

// pathSlot answers on one path of the outer server for as long as that lives.
type pathSlot struct{ current atomic.Pointer[slotHandlers] }

// slotHandlers does not change; a slot without an owner is answered by dormant.
type slotHandlers struct {
	owner   *PathOwner
	active  http.Handler
	dormant http.Handler
}

func (s *pathSlot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := s.current.Load()
	if now.owner == nil || !now.owner.beginRequest() {
		now.dormant.ServeHTTP(w, r)
		return
	}
	defer now.owner.requests.Done()
	now.active.ServeHTTP(w, r)
}

// occupyPath runs under the multiplexer's lock.
func (s *pathSlot) occupyPath(path string, handler http.Handler, by *PathOwner) error {
	if old := s.current.Load(); old != nil && old.owner != nil && old.owner.isPresent() {
		return fmt.Errorf("expected webhook path %s to be free, found it taken by the running conditional group %q: give one of the two "+
			"another path (WithValidatorCustomPath, WithDefaulterCustomPath), or set both webhooks up in one group", path, old.owner.Group)
	}
	mine := &slotHandlers{owner: by, active: handler, dormant: newDormantHandler(path, by, handler)}
	s.current.Store(mine)
	// Another owner may have taken the slot by the time of the release, and its handlers stay.
	return by.onRelease(func() { s.current.CompareAndSwap(mine, &slotHandlers{dormant: mine.dormant}) })
}

// PathOwner is one activation of a group.
type PathOwner struct {
	Group         string          // its name, for messages
	DormantPolicy DormantPolicy   // of its paths after the release
	Ended         <-chan struct{} // closes with the scope, at the latest

	requests   sync.WaitGroup // that its handlers are answering
	mu         sync.Mutex
	isReleased bool
	vacate     []func()
}

// ReleasePaths makes the owner's paths dormant and drops its handlers. Requests in flight go on.
func (t *PathOwner) ReleasePaths() {
	t.mu.Lock()
	vacate := t.vacate
	t.isReleased, t.vacate = true, nil
	t.mu.Unlock()
	for _, v := range vacate {
		v()
	}
}

// WaitForRequests returns after the last request in flight; call it after ReleasePaths.
func (t *PathOwner) WaitForRequests() { t.requests.Wait() }

func (t *PathOwner) onRelease(vacate func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The scope may end while setup still registers its webhooks.
	if t.isReleased {
		vacate()
		return ErrReleased
	}
	t.vacate = append(t.vacate, vacate)
	return nil
}

// beginRequest reports whether a request may be handled, and counts it if so.
func (t *PathOwner) beginRequest() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isGoneLocked() {
		return false
	}
	t.requests.Add(1)
	return true
}

func (t *PathOwner) isPresent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.isGoneLocked()
}

// isGoneLocked is true from the end of the scope on, which may come before ReleasePaths.
func (t *PathOwner) isGoneLocked() bool {
	select {
	case <-t.Ended:
		return true
	default:
		return t.isReleased
	}
}
