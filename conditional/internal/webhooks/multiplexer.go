// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// convertPath is where controller-runtime's builder serves the conversion of all kinds.
const convertPath = "/convert"

// ManagerMultiplexers has one multiplexer per manager. Its zero value is ready for use.
type ManagerMultiplexers struct {
	mu        sync.Mutex
	byManager map[manager.Manager]*Multiplexer
}

// ForManager returns the manager's multiplexer, a new one if there is none. It does not touch the manager's webhook server.
func (all *ManagerMultiplexers) ForManager(mgr manager.Manager) *Multiplexer {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byManager == nil {
		all.byManager = map[manager.Manager]*Multiplexer{}
	}
	if all.byManager[mgr] == nil {
		all.byManager[mgr] = &Multiplexer{slots: map[string]*pathSlot{}, converters: map[schema.GroupKind]conversion.Converter{}}
	}
	return all.byManager[mgr]
}

// Multiplexer is shared by all groups of one manager, and lives as long as its webhook server.
type Multiplexer struct {
	mu         sync.RWMutex
	slots      map[string]*pathSlot
	converters map[schema.GroupKind]conversion.Converter
}

// ClaimPath lets handler answer on path until the owner releases it; /convert is answered by its last handler for ever.
// A path that another owner or the server itself has is an error.
func (m *Multiplexer) ClaimPath(server webhook.Server, path string, handler http.Handler, by *PathOwner) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if path == convertPath {
		return m.claimConversion(server, handler)
	}
	s, there := m.slots[path]
	if !there {
		s = &pathSlot{}
	}
	if err := s.occupyPath(path, handler, by); err != nil {
		return err
	}
	// The server has the path already: it cannot forget one, and panics when one is registered again.
	if there {
		return nil
	}
	if err := registerPath(server, path, s); err != nil {
		return fmt.Errorf("expected webhook path %s to be free on the manager's webhook server, found it taken: set the webhook up "+
			"either inside a conditional group or outside: %w", path, err)
	}
	m.slots[path] = s
	return nil
}

// claimConversion leaves a /convert that was set up outside in its place: it serves all kinds of the manager's scheme.
func (m *Multiplexer) claimConversion(server webhook.Server, handler http.Handler) error {
	s, there := m.slots[convertPath]
	if !there {
		s = &pathSlot{}
	}
	s.current.Store(&slotHandlers{dormant: handler})
	if there {
		return nil
	}
	if err := registerPath(server, convertPath, s); err != nil {
		// A /convert from outside knows the converters of the outer registry only.
		if len(m.converters) > 0 {
			return fmt.Errorf("expected %s to be free for the converter of a conditional group, found it set up outside, where it does not "+
				"know that converter: set up outside every webhook WithConverter: %w", convertPath, err)
		}
		return nil
	}
	m.slots[convertPath] = s
	return nil
}

// registerPath turns the server's panic into an error. To look at the server's mux instead would race with its start.
func registerPath(server webhook.Server, path string, handler http.Handler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if err, ok = p.(error); !ok {
				err = fmt.Errorf("%v", p)
			}
		}
	}()
	server.Register(path, handler)
	return nil
}
