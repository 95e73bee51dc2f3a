// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// forms are the ConfigMap as it may be watched.
func forms() map[string]client.Object {
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	loose, metadata := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	loose.SetGroupVersionKind(gvk)
	metadata.SetGroupVersionKind(gvk)
	return map[string]client.Object{"typed": &corev1.ConfigMap{}, "unstructured": loose, "metadata": metadata}
}

// watchForms listens to each form in a cache.
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

	if err := first.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
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

// TestNeighbourOnASharedInformerLosesNoEvent is a promise: what shares an informer with a group does not notice that
// the group comes and goes.
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

// know makes the detector know a kind, as a group's condition does.
func (r *scopeEnv) know(gvk schema.GroupVersionKind) {
	r.t.Helper()
	verdicts, cancel, err := r.hub.Detector.Subscribe(detect.Interest{Kinds: []schema.GroupVersionKind{gvk}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cancel)
	for known := false; !known; {
		known = within(r.t, verdicts)[0].Presence == detect.Served
	}
}

func TestStartsOfTheirOwnLeakNothing(t *testing.T) {
	const cycles = 100
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	cycle := func() {
		var seen map[string]<-chan string
		l := r.begin(Options{}, func(m *Manager) {
			index := func(client.Object) []string { return []string{"x"} }
			if err := m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", index); err != nil {
				t.Fatal(err)
			}
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
