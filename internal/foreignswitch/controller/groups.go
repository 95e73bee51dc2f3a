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
	// gone are the UIDs of adapters that are not there any more, by their names, which others may have by now; abandoned says that there are some.
	gone      map[string]string
	abandoned chan struct{}
	// isOver says that all of them have been ended: one that comes later would never be.
	isOver bool
}

// adapterGroup is a controller, and which generation of which adapter it is of.
type adapterGroup struct {
	*conditional.Group
	uid        string
	generation int64
}

// add returns false if it is too late for another.
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
	if isThere {
		is.end(ctx)
	}
}

// end ends a controller that nobody finds any more.
func (is adapterGroup) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_ = is.Remove(ctx) // It goes on to end.
}

// abandon has the controller of an adapter that is gone end soon.
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
	default: // It is known that there are some.
	}
}

// run ends the controllers of adapters that are gone, and in the end all of them.
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

// takeGone returns the controllers of adapters that are gone. One of an adapter that has the name since then is another's.
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

// close takes no more controllers, and returns the names of those that are there.
func (g *adapterGroups) close() (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isOver = true
	for name := range g.all {
		names = append(names, name)
	}
	return names
}
