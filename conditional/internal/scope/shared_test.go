// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// forms returns the forms in which ConfigMaps can be watched.
func forms() map[string]client.Object {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	loose, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	loose.SetGroupVersionKind(gvk)
	metadata.SetGroupVersionKind(gvk)
	return map[string]client.Object{"typed": &corev1.ConfigMap{}, "unstructured": loose, "metadata": metadata}
}

// watchForms adds a handler for each form to a cache.
func (r *scopeEnv) watchForms(m *Manager, namespace string) map[string]<-chan string {
	r.t.Helper()
	seen := map[string]<-chan string{}
	for form, obj := range forms() {
		seen[form] = r.listen(m.GetCache(), obj, namespace)
	}
	return seen
}

func (r *scopeEnv) expectName(seen map[string]<-chan string, name string) {
	r.t.Helper()
	for form, names := range seen {
		if got := within(r.t, names); got != name {
			r.t.Errorf("%s: got %s, want %s", form, got, name)
		}
	}
}

func TestInformersAreShared(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	outer := r.listen(r.outer.GetCache(), &corev1.ConfigMap{}, ns)
	r.startOuter()

	var one, two map[string]<-chan string
	first := r.begin(Options{}, func(m *Manager) { one = r.watchForms(m, ns) })
	second := r.begin(Options{}, func(m *Manager) { two = r.watchForms(m, ns) })
	r.expectInformers(3, 6)
	r.configMap(ns, "a")
	for _, seen := range []map[string]<-chan string{one, two} {
		r.expectName(seen, "a")
	}

	testenv.Must(t, first.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}))
	r.expectInformers(3, 5)
	if err := first.GetCache().RemoveInformer(t.Context(), &corev1.Secret{}); err != nil {
		t.Errorf("remove an informer that is not there: %v", err)
	}
	r.configMap(ns, "b")
	r.expectName(two, "b")
	delete(one, "typed")
	r.expectName(one, "b")

	r.end(first)
	r.expectInformers(3, 3)
	r.configMap(ns, "c")
	r.expectName(two, "c")
	r.end(second)
	r.expectInformers(0, 0)
	for _, want := range []string{"a", "b", "c"} {
		if got := within(t, outer); got != want {
			t.Errorf("the outer cache's handler got %s, want %s", got, want)
		}
	}
}

// A scope without a condition on its kinds queries discovery only for the kinds that it uses.
func TestKindWithoutAConditionIsQueriedOnce(t *testing.T) {
	r := newScopeEnv(t)
	l := r.begin(Options{}, func(*Manager) {})
	before := r.asked.Load()
	r.listen(l.GetCache(), &corev1.ConfigMap{}, "none")
	if n := r.asked.Load() - before; n != 1 {
		t.Errorf("expected one question to discovery, found %d", n)
	}
	r.end(l)
}

// TestNeighbourOnASharedInformerLosesNoEvent covers a promise: a controller that shares an informer with a group is not
// affected when the group starts and stops.
func TestNeighbourOnASharedInformerLosesNoEvent(t *testing.T) {
	const cycles, every = 1000, 5
	r := newScopeEnv(t)
	ns := r.namespace()
	r.know(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	var seen <-chan string
	neighbour := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	var starts []time.Duration
	cycle := func() {
		began := time.Now()
		l := r.begin(Options{}, func(m *Manager) { r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
		if !l.GetCache().WaitForCacheSync(t.Context()) {
			t.Fatal("the scope does not sync")
		}
		starts = append(starts, time.Since(began))
		r.end(l)
	}
	cycle()
	before, asked := r.goroutines(), r.asked.Load()
	want := map[string]bool{}
	for i := range cycles {
		if i%every == 0 {
			name := fmt.Sprintf("event-%d", i)
			r.configMap(ns, name)
			want[name] = true
		}
		cycle()
	}
	for range len(want) {
		delete(want, within(t, seen))
	}
	if len(want) > 0 || len(seen) > 0 {
		t.Errorf("the neighbour lost %v and got %d events too many", slices.Sorted(maps.Keys(want)), len(seen))
	}
	r.noMoreGoroutinesThan(before)
	r.expectInformers(1, 1)
	if more := r.asked.Load() - asked; more > 0 {
		t.Errorf("the starts made %d requests to discovery, want none", more)
	}
	r.end(neighbour)
	r.expectInformers(0, 0)
	slices.Sort(starts)
	t.Logf("start of a scope, %d times: p50 %s, p99 %s", len(starts), starts[len(starts)/2], starts[len(starts)*99/100])
}

// know makes the detector observe a kind, as a group's condition does.
func (r *scopeEnv) know(gvk schema.GroupVersionKind) {
	r.t.Helper()
	verdicts, cancel := r.hub.Detector.Subscribe(detect.Interest{Kinds: []schema.GroupVersionKind{gvk}}, nil)
	r.t.Cleanup(cancel)
	for known := false; !known; {
		known = within(r.t, verdicts)[0].Presence == detect.Served
	}
}

func TestRepeatedScopesLeakNothing(t *testing.T) {
	const cycles = 100
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	cycle := func() {
		var seen map[string]<-chan string
		l := r.begin(Options{}, func(m *Manager) {
			index := func(client.Object) []string { return []string{"x"} }
			testenv.Must(t, m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", index))
			seen = r.watchForms(m, ns)
		})
		r.expectName(seen, "a")
		r.end(l)
	}
	cycle()
	r.expectInformers(0, 0)
	before := r.goroutines()
	for range cycles {
		cycle()
	}
	r.expectInformers(0, 0)
	r.noMoreGoroutinesThan(before)
}

// handle adds a handler for added objects.
func (r *scopeEnv) handle(m *Manager, obj client.Object, f func(added client.Object)) (remove func() error) {
	r.t.Helper()
	informer, err := m.GetCache().GetInformer(r.t.Context(), obj, cache.BlockUntilSynced(false))
	testenv.Must(r.t, err)
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
		if obj, ok := added.(client.Object); ok {
			f(obj)
		}
	}})
	testenv.Must(r.t, err)
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
		return stuck.AddHealthzCheck("x", nil) != nil, nil // A draining scope refuses health checks.
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
	r.expectInformers(1, 0) // The informer cannot stop before its last handler returns.

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
	testenv.Must(t, remove())
	testenv.Must(t, l.GetCache().RemoveInformer(t.Context(), &corev1.Secret{}))
	if !l.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("the scope waits for an informer that was removed")
	}
	r.end(l)
}

func TestEventWaitsForThePreviousGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &eventGate{drained: make(chan struct{})}
		second := &eventGate{drained: make(chan struct{}), previous: first.drained}
		free := make(chan struct{})
		var order []string
		go first.handleEvent(0, func() { <-free; order = append(order, "first") })
		synctest.Wait()
		first.closeGate()
		go second.handleEvent(0, func() { order = append(order, "second") })
		first.handleEvent(0, func() { order = append(order, "late") })
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
