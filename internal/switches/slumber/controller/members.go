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

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// MemberKinds are the kinds with a switch that can be stopped now, and the readers of their objects. The controllers
// of these kinds announce and withdraw them. One lives as long as the process.
type MemberKinds struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]readableKind
	// queue and slumbers belong to the controller while it runs.
	queue    workqueue.TypedRateLimitingInterface[ctrl.Request]
	slumbers client.Reader
	// awaitedUntil is the time until which kinds may still be announced, because the controller has just started.
	awaitedUntil time.Time
}

// changesDelay gathers the changes of many objects into one pass.
const changesDelay = time.Second

// readableKind is a kind and the reader of its objects, which reads metadata from a cache and whole objects past it.
type readableKind struct {
	kinds.Kind
	reader client.Reader
}

// AddKind announces that the objects of a kind can be stopped.
func (m *MemberKinds) AddKind(ctx context.Context, kind kinds.Kind, reader client.Reader) {
	m.mu.Lock()
	if m.kinds == nil {
		m.kinds = map[schema.GroupKind]readableKind{}
	}
	m.kinds[kind.GVK().GroupKind()] = readableKind{kind, reader}
	m.mu.Unlock()
	m.enqueueAll(ctx)
}

// RemoveKind withdraws a kind.
func (m *MemberKinds) RemoveKind(ctx context.Context, kind kinds.Kind) {
	m.mu.Lock()
	delete(m.kinds, kind.GVK().GroupKind())
	m.mu.Unlock()
	m.enqueueAll(ctx)
}

// ObjectChanged triggers a pass of each Slumber that an object concerns, including those that are gone. Many objects
// change at once in a wave, and each pass reads all of them.
func (m *MemberKinds) ObjectChanged(ctx context.Context, kind kinds.Kind, obj client.Object) {
	m.mu.Lock()
	queue := m.queue
	m.mu.Unlock()
	for _, stop := range stoprecord.ReadScheduled(obj.GetAnnotations()) {
		if queue != nil {
			queue.AddAfter(requestOf(obj, stop), changesDelay)
		}
	}
	m.enqueueIf(ctx, obj.GetNamespace(), changesDelay, func(s *torporv1alpha1.Slumber) bool { return slumber.Concerns(s, kind.GVK().GroupKind(), obj) })
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

func (m *MemberKinds) enqueueAll(ctx context.Context) {
	m.enqueueIf(ctx, "", 0, func(*torporv1alpha1.Slumber) bool { return true })
}

// enqueueIf triggers, after a delay, a pass of each Slumber in a namespace, or in all, for which a condition holds.
func (m *MemberKinds) enqueueIf(ctx context.Context, namespace string, delay time.Duration, holds func(*torporv1alpha1.Slumber) bool) {
	m.mu.Lock()
	queue, slumbers := m.queue, m.slumbers
	m.mu.Unlock()
	if queue == nil {
		return // A controller that starts passes over all of them.
	}
	var list torporv1alpha1.SlumberList
	if err := slumbers.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // The controller is ending.
	}
	for i := range list.Items {
		if s := &list.Items[i]; holds(s) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}, delay)
		}
	}
}

// kindsAwaitedUntil is the time until which a missing kind may still be announced; zero if no kinds are announced at
// all.
func (m *MemberKinds) kindsAwaitedUntil() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaitedUntil
}

// watch connects the controller's queue while the controller runs.
func (m *MemberKinds) watch(slumbers client.Reader, now clock.PassiveClock) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		m.mu.Lock()
		m.queue, m.slumbers, m.awaitedUntil = queue, slumbers, now.Now().Add(slumber.KindsGrace)
		m.mu.Unlock()
		context.AfterFunc(ctx, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.queue == queue {
				m.queue, m.slumbers = nil, nil
			}
		})
		return nil
	})
}
