// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// groupWatch is a watch that was added to a group's controller.
type groupWatch struct {
	source *kindSource[client.Object, reconcile.Request]
	users  int
	stop   context.CancelFunc // nil while the group does not run
}

// Watch adds a watch to the group's controller, which goes on: it watches the kind of object while that is served, until Unwatch was
// called as often as Watch with this id. It comes back with every start of the group. A Watch whose id is known counts only; its
// handler is not used. Reads of the kind through the group's client keep an informer until the group stops.
func (g *Group) Watch(id string, object client.Object, h handler.EventHandler, predicates ...predicate.Predicate) error {
	if id == "" || object == nil || h == nil {
		return fmt.Errorf("group %s: Watch needs an id, an object and a handler, found %q, %T and %T: pass all three", g.options.name, id, object, h)
	}
	if _, err := findKind(object, g.src.Scheme); err != nil {
		return fmt.Errorf("group %s: %w", g.options.name, err)
	}
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	if w := g.watches[id]; w != nil {
		w.users++
		return nil
	}
	w := &groupWatch{users: 1, source: &kindSource[client.Object, reconcile.Request]{
		cl: g.mgr, obj: object, handler: h, predicates: predicates, interest: g.src.interest,
	}}
	if err := g.startWatch(w); err != nil {
		return err
	}
	if g.watches == nil {
		g.watches = map[string]*groupWatch{}
	}
	g.watches[id] = w
	return nil
}

// Unwatch takes back one Watch, and ends the watch with the last one.
func (g *Group) Unwatch(id string) error {
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	w := g.watches[id]
	if w == nil {
		return fmt.Errorf("group %s: expected the id of a Watch, found %q: pass one that was not taken back", g.options.name, id)
	}
	if w.users--; w.users > 0 {
		return nil
	}
	delete(g.watches, id)
	if w.stop != nil {
		w.stop()
	}
	return nil
}

// startWatch starts a watch, if the group's controller has a queue.
func (g *Group) startWatch(w *groupWatch) error {
	if g.queue == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(g.queue.Context)
	w.stop = cancel
	if err := w.source.Start(ctx, g.queue.Queue); err != nil {
		cancel()
		return fmt.Errorf("group %s: %w", g.options.name, err)
	}
	return nil
}

// useQueue starts the watches that were added when the group's controller starts.
func (g *Group) useQueue(q scope.ControllerQueue) error {
	g.watchesMu.Lock()
	defer g.watchesMu.Unlock()
	if g.queue != nil && g.queue.Context.Err() == nil {
		if len(g.watches) > 0 {
			return errors.New("expected one controller in a group with Watch, found two: set up a group for each")
		}
		return nil
	}
	g.queue = &q
	for _, w := range g.watches {
		if err := g.startWatch(w); err != nil {
			return err
		}
	}
	return nil
}
