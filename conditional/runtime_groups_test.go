// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func discardLog(o *ctrl.Options) { o.Logger = logr.Discard() }

// newReporter returns a setup function whose controller reports the names of the reconciled ConfigMaps.
func newReporter(name string, seen chan<- string) SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named(name).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				select {
				case seen <- req.Name:
				case <-ctx.Done():
				}
				return reconcile.Result{}, nil
			}))
	}
}

// waitForGoroutines waits until the number of goroutines is not above a limit.
func (s *apiServer) waitForGoroutines(limit int) {
	s.t.Helper()
	s.eventually(fmt.Sprint("at most ", limit, " goroutines run"), func(context.Context) (bool, error) { return runtime.NumGoroutine() <= limit, nil })
}

func TestGroupsComeAndGoWhileTheManagerRuns(t *testing.T) {
	const groups, atOnce = 1000, 20
	s := startAPIServer(t)
	s.createConfigMap("one")
	mgr := s.newManagerFor(s.cfg, discardLog)
	stay := mustSetUp(t, mgr, Served(s.mustFindKind(&corev1.ConfigMap{})), newReporter("stays", make(chan string, 10000)), Name("stays"))
	s.startManager(mgr)
	s.waitForPhase(stay, Running)
	cycle := func(name string) {
		seen := make(chan string, 100)
		g, err := Setup(mgr, Served(s.mustFindKind(&corev1.ConfigMap{})), newReporter(name, seen), Name(name))
		testenv.Must(t, err)
		s.waitForPhase(g, Running)
		s.expectReconcile(seen, "one")
		testenv.Must(t, g.Remove(t.Context()))
	}
	cycle("kinds/warm-up") // The first cycle opens resources that remain.
	before := runtime.NumGoroutine()
	var workers sync.WaitGroup
	for w := range atOnce {
		workers.Go(func() {
			for i := range groups / atOnce {
				cycle(fmt.Sprintf("kinds/group-%d.%d", w, i))
			}
		})
	}
	workers.Wait()
	s.waitForGoroutines(before)
	for _, name := range []string{"kinds/warm-up", "kinds/group-0.0", fmt.Sprintf("kinds/group-%d.%d", atOnce-1, groups/atOnce-1)} {
		if left := seriesOf(t, name); len(left) > 0 {
			t.Errorf("group %s has left the series %v", name, slices.Sorted(maps.Keys(left)))
		}
	}
	if got := len(seriesOf(t, "stays")); got == 0 {
		t.Error("the series of a group that stays are gone")
	}
}

func TestGroupStopsAndStartsOnRequest(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.installCRD(def)
	mgr := s.newManagerFor(s.cfg)
	seen := make(chan string, 100)
	s.startManager(mgr)
	g := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), seen), Name("held"))
	s.waitForPhase(g, Running)
	testenv.Must(t, g.Stop(t.Context()))
	s.uninstallCRD(def)
	s.waitUntilGone(def)
	s.waitForCondition(g, False, "")
	s.installCRD(def)
	s.createWidgetIn("default", "one")
	s.waitForCondition(g, True, "")
	s.waitForPhase(g, Dormant)
	g.Start()
	s.expectReconcile(seen, "one")
	testenv.Must(t, g.Remove(t.Context()))
	again := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), seen), Name("held"))
	s.waitForPhase(again, Running)
}

func TestAHundredGroupsAtRestHaveNoGoroutines(t *testing.T) {
	const groups = 100
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.cfg, discardLog)
	s.startManager(mgr)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	sleep := func(prefix string, n int) {
		groups := make([]*Group, n)
		for i := range groups {
			kind := schema.GroupVersionKind{Group: fmt.Sprintf("g%d.example.com", i/10), Version: "v1", Kind: fmt.Sprint(prefix, i)}
			groups[i] = mustSetUp(t, mgr, Served(kind), func(manager.Manager) error { return nil }, Name(fmt.Sprint(prefix, i)))
		}
		for _, g := range groups {
			s.waitForCondition(g, False, "NotServed")
		}
	}
	sleep("first", 1)
	base := runtime.NumGoroutine()
	sleep("other", groups)
	s.waitForGoroutines(base)
	before := heap()
	sleep("more", 10*groups) // With this many groups, the other memory of the process is negligible.
	s.waitForGoroutines(base)
	each := (heap() - before) / (10 * groups)
	t.Logf("no goroutine for %d groups more, %d bytes of heap each", 11*groups, each)
	if each > 2<<10 {
		t.Errorf("%d bytes for each group, want at most 2 KiB", each)
	}
}

func TestARunningGroupIsNotLarge(t *testing.T) {
	const groups = 20
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.cfg, discardLog)
	s.startManager(mgr)
	run := func(kind schema.GroupVersionKind, plural string) {
		s.installCRD(testenv.NewCRD(kind, plural, apiextensionsv1.NamespaceScoped))
		s.waitForPhase(mustSetUp(t, mgr, Served(kind), watching(kind, make(chan string)), Name(kind.Kind)), Running)
	}
	kindOf := func(i int) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprint("Kind", i)}
	}
	run(kindOf(0), "kind0s")
	before := runtime.NumGoroutine()
	for i := range groups {
		run(kindOf(i+1), fmt.Sprint("kind", i+1, "s"))
	}
	s.waitForGoroutines(before + groups*22)
	t.Logf("%.1f goroutines for each running group", float64(runtime.NumGoroutine()-before)/groups)
}

func TestWatchesComeAndGoUnderARunningController(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	mgr := s.newManagerFor(s.cfg, discardLog)
	seen := make(chan string, 100)
	g := mustSetUp(t, mgr, Served(s.mustFindKind(&corev1.ConfigMap{})), newReporter("engine", seen), Name("engine"))
	byName := &handler.EnqueueRequestForObject{}
	testenv.Must(t, g.Watch("widgets", newWidget(), byName)) // The watch is added before the group starts and before the kind is served.
	s.startManager(mgr)
	s.waitForPhase(g, Running)
	testenv.Must(t, g.Watch("widgets", newWidget(), byName))
	s.installCRD(def)
	s.createWidgetIn("default", "one")
	s.expectReconcile(seen, "one")
	testenv.Must(t, g.Unwatch("widgets"))
	s.createWidgetIn("default", "two")
	s.expectReconcile(seen, "two")
	g.Restart()
	s.expectReconcile(seen, "two")
	before := runtime.NumGoroutine()
	testenv.Must(t, g.Unwatch("widgets"))
	s.eventually("the watch has ended", func(context.Context) (bool, error) { return runtime.NumGoroutine() < before, nil })
	s.createWidgetIn("default", "three")
	s.createConfigMap("after-three")
	for name := ""; name != "after-three"; {
		if name = <-seen; name == "three" {
			t.Error("an object was seen after the last Unwatch")
		}
	}
	if g.Unwatch("widgets") == nil {
		t.Error("a watch that is gone was taken back once more")
	}
	testenv.Must(t, g.Remove(t.Context()))
}

func TestAGroupHasCacheOptionsOfItsOwnUntilTheNextStart(t *testing.T) {
	s := startAPIServer(t)
	for _, namespace := range []string{"left", "right"} {
		testenv.Must(t, s.newClient().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		testenv.Must(t, s.newClient().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + namespace}}))
	}
	mgr := s.newManagerFor(s.cfg, discardLog)
	var namespace atomic.Value
	namespace.Store("left")
	seen := make(chan string, 100)
	g := mustSetUp(t, mgr, Served(s.mustFindKind(&corev1.ConfigMap{})), newReporter("cached", seen), Name("cached"), CacheOptions(func(o *cache.Options) {
		o.DefaultNamespaces = map[string]cache.Config{fmt.Sprint(namespace.Load()): {}}
	}))
	s.startManager(mgr)
	s.expectReconcile(seen, "of-left")
	s.waitForPhase(g, Running)
	namespace.Store("right")
	g.Restart()
	for name := ""; name != "of-right"; {
		if name = <-seen; name != "of-right" && name != "of-left" && name != "kube-root-ca.crt" {
			t.Errorf("saw %s of another namespace", name)
		}
	}
}

func TestKindIsCachedOnceForAPlainControllerAndAGroup(t *testing.T) {
	s := startAPIServer(t)
	s.createConfigMap("one")
	mgr := s.newManagerFor(s.cfg)
	plain, grouped := make(chan string, 1000), make(chan string, 1000)
	testenv.Must(t, newReporter("plain", plain)(mgr))
	flag := make(chan bool)
	g := mustSetUp(t, mgr, signal("flag", flag), newReporter("grouped", grouped), Name("grouped"))
	s.startManager(mgr)
	s.expectReconcile(plain, "one")
	for range 3 {
		flag <- true
		s.waitForPhase(g, Running)
		s.expectReconcile(grouped, "one")
		if n := g.server.Informers.InformerCount(); n != 0 {
			t.Errorf("the group runs %d informers beside that of the plain controller, want 0", n)
		}
		flag <- false
		s.waitForPhase(g, Dormant)
	}
	s.createConfigMap("two") // The stops have removed nothing from the plain controller.
	s.expectReconcile(plain, "two")
}
