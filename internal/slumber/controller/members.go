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
	"github.com/torpor-dev/torpor/internal/slumber"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

// MemberKinds are the kinds with a switch that can be stopped now, with what reads their objects: whoever stops them says when that begins and
// ends. One lives as long as the process.
type MemberKinds struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]readableKind
	// queue and slumbers are those of the controller while it runs.
	queue    workqueue.TypedRateLimitingInterface[ctrl.Request]
	slumbers client.Reader
	// awaitedUntil is until when kinds may still be announced, as the controller has just begun.
	awaitedUntil time.Time
}

// changesDelay gathers the changes of many objects in one look.
const changesDelay = time.Second

// readableKind is a kind, and what reads its objects: their metadata from a cache, and whole ones past it.
type readableKind struct {
	stoppable.Kind
	reader client.Reader
}

// AddKind says that the objects of a kind can be stopped.
func (m *MemberKinds) AddKind(ctx context.Context, kind stoppable.Kind, reader client.Reader) {
	m.mu.Lock()
	if m.kinds == nil {
		m.kinds = map[schema.GroupKind]readableKind{}
	}
	m.kinds[kind.GVK.GroupKind()] = readableKind{kind, reader}
	m.mu.Unlock()
	m.enqueueAll(ctx)
}

// RemoveKind says that they cannot any more.
func (m *MemberKinds) RemoveKind(ctx context.Context, kind stoppable.Kind) {
	m.mu.Lock()
	delete(m.kinds, kind.GVK.GroupKind())
	m.mu.Unlock()
	m.enqueueAll(ctx)
}

// ObjectChanged has the Slumbers look again that an object concerns. Many change at once in a wave, and each look reads all of them.
func (m *MemberKinds) ObjectChanged(ctx context.Context, kind stoppable.Kind, obj client.Object) {
	m.enqueueIf(ctx, obj.GetNamespace(), changesDelay, func(s *torporv1alpha1.Slumber) bool { return slumber.Concerns(s, kind.GVK.GroupKind(), obj) })
}

// list returns the kinds in an order that stays.
func (m *MemberKinds) list() []readableKind {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []readableKind
	for _, kind := range m.kinds {
		all = append(all, kind)
	}
	slices.SortFunc(all, func(a, b readableKind) int {
		return strings.Compare(a.GVK.GroupKind().String(), b.GVK.GroupKind().String())
	})
	return all
}

func (m *MemberKinds) enqueueAll(ctx context.Context) {
	m.enqueueIf(ctx, "", 0, func(*torporv1alpha1.Slumber) bool { return true })
}

// enqueueIf has those Slumbers of a namespace, or of all, look again for which something holds, after a delay.
func (m *MemberKinds) enqueueIf(ctx context.Context, namespace string, delay time.Duration, holds func(*torporv1alpha1.Slumber) bool) {
	m.mu.Lock()
	queue, slumbers := m.queue, m.slumbers
	m.mu.Unlock()
	if queue == nil {
		return // A controller that starts looks at all of them.
	}
	var list torporv1alpha1.SlumberList
	if err := slumbers.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // The controller ends.
	}
	for i := range list.Items {
		if s := &list.Items[i]; holds(s) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}, delay)
		}
	}
}

// kindsAwaitedUntil is until when a kind that is missing may still come; zero where none is announced.
func (m *MemberKinds) kindsAwaitedUntil() time.Time {
	if m == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.awaitedUntil
}

// watch connects the controller's queue for as long as the controller runs.
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
