// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
)

// removeTimeout limits how long a reconciliation waits for a controller to end.
const removeTimeout = 10 * time.Second

// adapterGroups holds the controllers of kinds, by the name of their StopAdapter.
type adapterGroups struct {
	mu  sync.Mutex
	all map[string]adapterGroup
	// gone maps the names of deleted adapters to their UIDs, because a new adapter may have the same name. A value in
	// abandoned signals that gone has entries.
	gone      map[string]string
	abandoned chan struct{}
	// isOver is true once all controllers have been ended. No controller is added after that, because it would never
	// end.
	isOver bool
}

// adapterGroup is a controller with the UID and the generation of its adapter.
type adapterGroup struct {
	*conditional.Group
	uid        string
	generation int64
}

// add adds the controller of an adapter. It returns false if all controllers have already been ended.
func (g *adapterGroups) add(a *torporv1alpha1.StopAdapter, group *conditional.Group) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOver {
		return false
	}
	if g.all == nil {
		g.all = map[string]adapterGroup{}
	}
	g.all[a.Name] = adapterGroup{group, string(a.UID), a.Generation}
	return true
}

// isCurrent reports whether the existing controller was created for this UID and generation of an adapter.
func (g *adapterGroups) isCurrent(a *torporv1alpha1.StopAdapter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	is, isThere := g.all[a.Name]
	return isThere && is.uid == string(a.UID) && is.generation == a.Generation
}

func (g *adapterGroups) status(name string) conditional.GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	if is, isThere := g.all[name]; isThere {
		return is.Status()
	}
	return conditional.GroupStatus{}
}

// remove ends a controller, and waits at most removeTimeout for its end.
func (g *adapterGroups) remove(ctx context.Context, name string) {
	g.mu.Lock()
	is, isThere := g.all[name]
	delete(g.all, name)
	g.mu.Unlock()
	if isThere {
		is.end(ctx)
	}
}

// end ends a controller that has been removed from the map.
func (is adapterGroup) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_ = is.Remove(ctx) // After a timeout, the controller continues to end.
}

// abandon marks the controller of a deleted adapter, so that run ends it.
func (g *adapterGroups) abandon(name string) {
	g.mu.Lock()
	if is, isThere := g.all[name]; isThere {
		if g.gone == nil {
			g.gone = map[string]string{}
		}
		g.gone[name] = is.uid
	}
	g.mu.Unlock()
	select {
	case g.abandoned <- struct{}{}:
	default: // A signal is already pending.
	}
}

// run ends the controllers of deleted adapters, and all controllers when the context ends.
func (g *adapterGroups) run(ctx context.Context) error {
	for {
		select {
		case <-g.abandoned:
			for _, is := range g.takeGone() {
				is.end(ctx)
			}
		case <-ctx.Done():
			for _, name := range g.close() {
				g.remove(context.WithoutCancel(ctx), name)
			}
			return nil
		}
	}
}

// takeGone removes and returns the controllers of deleted adapters. It keeps the controller of a newer adapter of
// the same name.
func (g *adapterGroups) takeGone() (gone []adapterGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, uid := range g.gone {
		if is, isThere := g.all[name]; isThere && is.uid == uid {
			gone = append(gone, is)
			delete(g.all, name)
		}
	}
	g.gone = nil
	return gone
}

// close prevents further controllers from being added, and returns the names of the existing controllers.
func (g *adapterGroups) close() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isOver = true
	for name := range g.all {
		names = append(names, name)
	}
	return names
}
