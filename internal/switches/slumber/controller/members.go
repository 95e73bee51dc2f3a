// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// MemberKinds holds the kinds that package fieldswitch can stop now, and the readers of their objects. The
// controllers of these kinds add and remove them. A process has one MemberKinds.
type MemberKinds struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]readableKind
	// running are the controllers that are notified now.
	running []*notifiedController
	// awaitedUntil is the time until which kinds may still be announced, because the controller has just started.
	awaitedUntil time.Time
}

// addFunc adds a request to a queue after a delay.
type addFunc func(req ctrl.Request, delay time.Duration)

// enqueueFunc adds a request for each Slumber or ClusterSlumber that an object concerns, or for all of them if the
// object is nil.
type enqueueFunc func(ctx context.Context, kind kinds.Kind, obj client.Object, add addFunc)

// notifiedController is a controller that is notified about kinds and their objects.
type notifiedController struct {
	queue   workqueue.TypedRateLimitingInterface[ctrl.Request]
	enqueue enqueueFunc
}

// changesDelay delays a reconciliation, so that it handles the changes to many objects.
const changesDelay = time.Second

// readableKind is a kind and the reader of its objects. The reader of a kind in MemberKinds reads metadata from a cache
// and whole objects from the API server.
type readableKind struct {
	kinds.Kind
	reader client.Reader
}

// AddKind records that objects of a kind can be stopped.
func (m *MemberKinds) AddKind(ctx context.Context, kind kinds.Kind, reader client.Reader) {
	m.mu.Lock()
	if m.kinds == nil {
		m.kinds = map[schema.GroupKind]readableKind{}
	}
	m.kinds[kind.GVK().GroupKind()] = readableKind{kind, reader}
	m.mu.Unlock()
	m.notify(ctx, kind, nil)
}

// RemoveKind records that objects of a kind can no longer be stopped.
func (m *MemberKinds) RemoveKind(ctx context.Context, kind kinds.Kind) {
	m.mu.Lock()
	delete(m.kinds, kind.GVK().GroupKind())
	m.mu.Unlock()
	m.notify(ctx, kind, nil)
}

// ObjectChanged enqueues each Slumber and ClusterSlumber that selects an object or has stopped it.
func (m *MemberKinds) ObjectChanged(ctx context.Context, kind kinds.Kind, obj client.Object) {
	m.notify(ctx, kind, obj)
}

// list returns the kinds in a stable order.
func (m *MemberKinds) list() []readableKind {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []readableKind
	for _, kind := range m.kinds {
		all = append(all, kind)
	}
	slices.SortFunc(all, func(a, b readableKind) int {
		return strings.Compare(a.GVK().GroupKind().String(), b.GVK().GroupKind().String())
	})
	return all
}

// notify enqueues each Slumber and ClusterSlumber that selects an object or has stopped it, or all of them if obj is
// nil. Controllers that start later reconcile all their objects anyway.
func (m *MemberKinds) notify(ctx context.Context, kind kinds.Kind, obj client.Object) {
	m.mu.Lock()
	running := slices.Clone(m.running)
	m.mu.Unlock()
	for _, c := range running {
		c.enqueue(ctx, kind, obj, func(req ctrl.Request, delay time.Duration) { c.queue.AddAfter(req, delay) })
	}
}

// kindsAwaitedUntil returns the time until which a missing kind may still be announced, or zero if no kinds are ever
// announced.
func (m *MemberKinds) kindsAwaitedUntil() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaitedUntil
}

// watch returns a source that enqueues requests for a running controller when kinds or their objects change.
func (m *MemberKinds) watch(enqueue enqueueFunc, now clock.PassiveClock) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		notified := &notifiedController{queue, enqueue}
		m.mu.Lock()
		m.running, m.awaitedUntil = append(m.running, notified), now.Now().Add(slumber.KindsGrace)
		m.mu.Unlock()
		context.AfterFunc(ctx, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.running = slices.DeleteFunc(m.running, func(c *notifiedController) bool { return c == notified })
		})
		return nil
	})
}
