// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// handle adds a handler of what is added.
func (r *scopeEnv) handle(m *Manager, obj client.Object, f func(added client.Object)) (remove func() error) {
	r.t.Helper()
	informer, err := m.GetCache().GetInformer(r.t.Context(), obj)
	if err != nil {
		r.t.Fatal(err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
		if obj, ok := added.(client.Object); ok {
			f(obj)
		}
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return func() error { return informer.RemoveEventHandler(registration) }
}

func TestABlockedHandlerBlocksItsOwnScopeOnly(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	inside, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	stuck := r.begin(Options{}, func(m *Manager) {
		r.handle(m, &corev1.ConfigMap{}, func(client.Object) {
			once.Do(func() { close(inside) })
			<-free
		})
	})
	within(t, inside)
	var seen <-chan string
	neighbour := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	within(t, seen)
	stuck.cancel()
	r.eventually("the stuck scope drains", func(context.Context) (bool, error) {
		return stuck.AddHealthzCheck("x", nil) != nil, nil // Refused from then on.
	})
	r.expectInformers(1, 1)
	select {
	case err := <-stuck.ended:
		t.Fatalf("the scope ended while its handler runs: %v", err)
	default:
	}
	stuck.Close()
	r.configMap(ns, "b")
	if got := within(t, seen); got != "b" {
		t.Errorf("the neighbour saw %s, want b", got)
	}
	r.end(neighbour)
	r.expectInformers(1, 0) // It cannot stop before its last handler returns.

	again := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	within(t, seen)
	r.end(again)
	close(free)
	if err := within(t, stuck.ended); err != nil {
		t.Error(err)
	}
	r.expectInformers(0, 0)
}

func TestAHandlerMayRemoveItself(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	names := make(chan string, 10)
	var remove func() error
	ready := make(chan struct{})
	l := r.begin(Options{}, func(m *Manager) {
		remove = r.handle(m, &corev1.ConfigMap{}, func(added client.Object) {
			<-ready
			if added.GetNamespace() != ns {
				return
			}
			if err := remove(); err != nil {
				t.Error(err)
			}
			names <- added.GetName()
		})
		close(ready)
	})
	seen := r.listen(l.GetCache(), &corev1.ConfigMap{}, ns)
	r.configMap(ns, "a")
	within(t, names)
	within(t, seen)
	r.configMap(ns, "b")
	if got := within(t, seen); got != "b" || len(names) > 0 {
		t.Errorf("the other handler saw %s, want b; the removed one saw %d more, want none", got, len(names))
	}
	r.end(l)
	r.expectInformers(0, 0)
}

func TestAHandlerMayRemoveItsInformer(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	removed := make(chan error, 1)
	l := r.begin(Options{}, func(m *Manager) {
		var once sync.Once
		r.handle(m, &corev1.ConfigMap{}, func(client.Object) {
			once.Do(func() { removed <- m.GetCache().RemoveInformer(context.Background(), &corev1.ConfigMap{}) })
		})
	})
	if err := within(t, removed); err != nil {
		t.Error(err)
	}
	r.expectInformers(0, 0)
	r.end(l)
}

func TestAHandlerThatIsRemovedBeforeItSyncsIsNotAwaited(t *testing.T) {
	r := newScopeEnv(t, "secrets")
	l := r.begin(Options{}, func(*Manager) {})
	remove := r.handle(l.Manager, &corev1.Secret{}, func(client.Object) {})
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if err := l.GetCache().RemoveInformer(t.Context(), &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	if !l.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("the scope waits for an informer that was removed")
	}
	r.end(l)
}

func TestAnEventWaitsForTheDoorBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &eventGate{drained: make(chan struct{})}
		second := &eventGate{drained: make(chan struct{}), previous: first.drained}
		free := make(chan struct{})
		var order []string
		go first.handleEvent(func() { <-free; order = append(order, "first") })
		synctest.Wait()
		first.closeGate()
		go second.handleEvent(func() { order = append(order, "second") })
		first.handleEvent(func() { order = append(order, "late") })
		synctest.Wait()
		if first.isDrained() || len(order) > 0 {
			t.Fatalf("before the first event has returned: %v", order)
		}
		close(free)
		synctest.Wait()
		second.closeGate()
		second.closeGate()
		if !first.isDrained() || !second.isDrained() || !slices.Equal(order, []string{"first", "second"}) {
			t.Errorf("got %v", order)
		}
	})
}
