// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
)

// removeTimeout bounds the wait for a controller that ends.
const removeTimeout = 10 * time.Second

// adapterGroups are the controllers of kinds, by the name of their StopAdapter.
type adapterGroups struct {
	mu  sync.Mutex
	all map[string]adapterGroup
	// gone are the names of adapters that are not there any more; abandoned says that there are some.
	gone      []string
	abandoned chan struct{}
}

// adapterGroup is a controller, and which generation of which adapter it is of.
type adapterGroup struct {
	*conditional.Group
	uid        string
	generation int64
}

func (g *adapterGroups) add(a *torporv1alpha1.StopAdapter, group *conditional.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[string]adapterGroup{}
	}
	g.all[a.Name] = adapterGroup{group, string(a.UID), a.Generation}
}

// isCurrent reports whether the controller is there that an adapter asks for.
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

// remove ends a controller. One that takes too long ends later.
func (g *adapterGroups) remove(ctx context.Context, name string) {
	g.mu.Lock()
	is, isThere := g.all[name]
	delete(g.all, name)
	g.mu.Unlock()
	if !isThere {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_ = is.Remove(ctx) // It goes on to end.
}

// abandon has the controller of an adapter that is gone end soon.
func (g *adapterGroups) abandon(name string) {
	g.mu.Lock()
	g.gone = append(g.gone, name)
	g.mu.Unlock()
	select {
	case g.abandoned <- struct{}{}:
	default: // It is known that there are some.
	}
}

// run ends the controllers of adapters that are gone, and in the end all of them.
func (g *adapterGroups) run(ctx context.Context) error {
	for {
		select {
		case <-g.abandoned:
			for _, name := range g.takeGone() {
				g.remove(ctx, name)
			}
		case <-ctx.Done():
			for _, name := range g.listNames() {
				g.remove(context.WithoutCancel(ctx), name)
			}
			return nil
		}
	}
}

func (g *adapterGroups) takeGone() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := g.gone
	g.gone = nil
	return gone
}

func (g *adapterGroups) listNames() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.all {
		names = append(names, name)
	}
	return names
}
