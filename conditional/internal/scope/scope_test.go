// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func noValues(client.Object) []string { return nil }

func TestAClosedScopeRefusesEverything(t *testing.T) {
	r := newScopeEnv(t)
	key := client.ObjectKey{Namespace: "default", Name: "a"}
	var informer cache.Informer
	l := r.begin(Options{}, func(m *Manager) {
		var err error
		informer, err = m.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		testenv.Must(t, err)
	})
	testenv.Must(t, client.IgnoreNotFound(l.GetClient().Get(t.Context(), key, &corev1.Secret{})))
	r.expectInformers(2, 2)
	r.end(l)
	c, known, fresh := l.GetClient(), &corev1.ConfigMap{}, &corev1.Pod{}
	unwritten := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
	_, getKnown := l.GetCache().GetInformer(t.Context(), known)
	_, getFresh := l.GetCache().GetInformer(t.Context(), fresh)
	_, byKind := l.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"))
	_, addHandler := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	for what, err := range map[string]error{
		"get":                      c.Get(t.Context(), key, known),
		"get another kind":         c.Get(t.Context(), key, fresh),
		"list":                     c.List(t.Context(), &corev1.PodList{}),
		"read without a cache":     l.GetAPIReader().Get(t.Context(), key, known),
		"write":                    c.Create(t.Context(), unwritten),
		"informer":                 getKnown,
		"informer of another kind": getFresh,
		"informer by kind":         byKind,
		"handler":                  addHandler,
		"index":                    l.GetFieldIndexer().IndexField(t.Context(), known, "x", noValues),
		"index on informer":        informer.AddIndexers(toolscache.Indexers{}),
		"remove informer":          l.GetCache().RemoveInformer(t.Context(), known),
		"add a runnable":           l.Add(manager.RunnableFunc(func(context.Context) error { return nil })),
		"add a health check":       l.AddHealthzCheck("x", nil),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
	if l.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("a closed scope says that it has synced")
	}
	if !informer.IsStopped() {
		t.Error("the informer does not say that it has stopped")
	}
	r.expectInformers(0, 0)
}

func TestAReadInFlightEndsWithItsScope(t *testing.T) {
	r := newScopeEnv(t, "secrets")
	l := r.begin(Options{}, func(*Manager) {})
	read := make(chan error)
	go func() {
		read <- l.GetClient().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.Secret{})
	}()
	r.expectInformers(1, 1)
	r.end(l)
	if err := within(t, read); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	r.expectInformers(0, 0)
}

func TestUnsyncedInformerDoesNotBlockOthers(t *testing.T) {
	r := newScopeEnv(t, "secrets")
	ns := r.namespace()
	hurt := r.begin(Options{}, func(*Manager) {})
	if _, err := hurt.GetCache().GetInformer(t.Context(), &corev1.Secret{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hurt.GetClient().List(short, &corev1.SecretList{}); !k8serrors.IsTimeout(err) {
		t.Errorf("a read with a context that ends: got %v, want a time-out", err)
	}
	if _, err := hurt.GetCache().GetInformer(short, &corev1.Secret{}); !k8serrors.IsTimeout(err) {
		t.Errorf("an informer with a context that ends: got %v, want a time-out", err)
	}
	if _, err := hurt.GetCache().GetInformer(short, &corev1.ServiceAccount{}); !k8serrors.IsTimeout(err) {
		t.Errorf("an informer whose kind is not found in time: got %v, want a time-out", err)
	}
	if hurt.GetCache().WaitForCacheSync(short) {
		t.Error("the scope says that it has synced")
	}
	var seen <-chan string
	fine := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	if !fine.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("another scope does not sync")
	}
	r.configMap(ns, "a")
	within(t, seen)
	r.end(fine)
	r.end(hurt)
	r.expectInformers(0, 0)
}

type idleDefaulter struct{}

func (idleDefaulter) Default(context.Context, *corev1.Pod) error { return nil }

// TestScopeRefusesTheWebhookServer covers a scope of a manager whose webhook server was never requested. A request
// would start the server.
func TestScopeRefusesTheWebhookServer(t *testing.T) {
	r := newScopeEnv(t)
	m, err := New(r.outer, r.hub, Options{})
	testenv.Must(t, err)
	for what, setUp := range map[string]func(){
		"a webhook handler: refused":   func() { m.GetWebhookServer().Register("/hook", http.NotFoundHandler()) },
		"the webhook builder: refused": func() { _ = ctrl.NewWebhookManagedBy(m, &corev1.Pod{}).WithDefaulter(idleDefaulter{}).Complete() },
	} {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "outer manager") {
					t.Errorf("%s: panicked with %v, want an error that says where webhooks belong", what, err)
				}
			}()
			setUp()
		}()
	}
	if err := m.AddMetricsServerExtraHandler("/page", http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), "outer manager") {
		t.Errorf("a handler of the metrics server: got %v, want an error that says where it belongs", err)
	}
	m.Close()
	m.GetWebhookServer().Register("/hook", http.NotFoundHandler()) // A panic would end the process.
	if err := context.Cause(m.over); !strings.Contains(err.Error(), "/hook") {
		t.Errorf("a late registration failed with %v, want an error that names the path", err)
	}
}

// byLabel indexes objects by a label.
func (r *scopeEnv) byLabel(m *Manager, label string) {
	r.t.Helper()
	err := m.GetFieldIndexer().IndexField(r.t.Context(), &corev1.ConfigMap{}, "label", func(obj client.Object) []string {
		return []string{obj.GetLabels()[label]}
	})
	testenv.Must(r.t, err)
}

func (r *scopeEnv) found(m *Manager, namespace, value string) int {
	r.t.Helper()
	var list corev1.ConfigMapList
	testenv.Must(r.t, m.GetClient().List(r.t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{"label": value}))
	return len(list.Items)
}

func TestScopesIndexTheSameFieldEachInItsOwnWay(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	made := r.configMap(ns, "a")
	made.Labels = map[string]string{"color": "red", "size": "big"}
	testenv.Must(t, r.client.Update(t.Context(), made))
	for range 3 { // The index is also available after a restart.
		color := r.begin(Options{}, func(m *Manager) { r.byLabel(m, "color") })
		size := r.begin(Options{}, func(m *Manager) { r.byLabel(m, "size") })
		plain := r.begin(Options{}, func(m *Manager) { r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
		if red, big := r.found(color.Manager, ns, "red"), r.found(size.Manager, ns, "big"); red != 1 || big != 1 {
			t.Errorf("found %d red and %d big, want one of each", red, big)
		}
		r.expectInformers(1, 3)
		if red := r.found(size.Manager, ns, "red"); red != 0 {
			t.Errorf("found %d of size red, want none", red)
		}
		r.end(color)
		r.end(size)
		r.expectInformers(1, 1)
		r.end(plain)
	}
	r.expectInformers(0, 0)
}

// TestAnEndedScopeIsNotCalled ends a scope while another scope keeps the informer running.
func TestAnEndedScopeIsNotCalled(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	made := r.configMap(ns, "a")
	var calls atomic.Int32
	var versions <-chan string
	neighbour := r.begin(Options{}, func(m *Manager) {
		r.byLabel(m, "color")
		versions = r.updates(m, ns)
	})
	l := r.begin(Options{}, func(m *Manager) {
		testenv.Must(t, m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "label", func(client.Object) []string {
			calls.Add(1)
			return []string{"x"}
		}))
	})
	if n := r.found(l.Manager, ns, "x"); n != 1 || calls.Load() == 0 {
		t.Errorf("found %d objects after %d calls of the index, want one object", n, calls.Load())
	}
	r.expectInformers(1, 2)
	r.end(l)
	before := calls.Load()
	made.Labels = map[string]string{"color": "red"}
	testenv.Must(t, r.client.Update(t.Context(), made))
	within(t, versions)
	if more := calls.Load() - before; more != 0 {
		t.Errorf("the index of an ended scope was called %d times, want never", more)
	}
	if red, x := r.found(neighbour.Manager, ns, "red"), r.found(neighbour.Manager, ns, "x"); red != 1 || x != 0 {
		t.Errorf("the other scope found %d by its own index and %d by the ended one, want one and none", red, x)
	}
	r.end(neighbour)
	r.expectInformers(0, 0)
}

// TestAPanicOfAnIndexHarmsNoOtherScope adds an index that panics to an informer that another scope uses. client-go
// calls the function of an index for the existing objects, and again for each change.
func TestAPanicOfAnIndexHarmsNoOtherScope(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	var seen <-chan string
	neighbour := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	within(t, seen)
	hurt, err := New(r.outer, r.hub, Options{})
	testenv.Must(t, err)
	testenv.Must(t, hurt.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", func(client.Object) []string { panic("no such field") }))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the function of the index did not panic, so this shows nothing")
			}
		}()
		_, _ = hurt.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	}()
	r.expectInformers(1, 1)
	hurt.End()
	r.configMap(ns, "b")
	if got := within(t, seen); got != "b" {
		t.Errorf("the other scope saw %s, want b", got)
	}
	r.end(neighbour)
	r.expectInformers(0, 0)
}

// TestListsByTwoFieldsWhileOtherScopesBegin lists with two indexes of an informer while other scopes add indexes to it.
func TestListsByTwoFieldsWhileOtherScopesBegin(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	r.configMap(ns, "a")
	names := func(obj client.Object) []string { return []string{obj.GetName()} }
	l := r.begin(Options{}, func(m *Manager) {
		for _, field := range []string{"x", "y"} {
			testenv.Must(t, m.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, names))
		}
	})
	stop, listed := make(chan struct{}), make(chan error, 1)
	go func() {
		for !isClosed(stop) {
			var list corev1.ConfigMapList
			err := l.GetClient().List(context.Background(), &list, client.InNamespace(ns), client.MatchingFields{"x": "a", "y": "a"})
			if err == nil && len(list.Items) != 1 {
				err = fmt.Errorf("found %d objects, want 1", len(list.Items))
			}
			if err != nil {
				listed <- err
				return
			}
		}
		listed <- nil
	}()
	for range 20 {
		r.end(r.begin(Options{}, func(m *Manager) {
			r.byLabel(m, "color")
			r.listen(m.GetCache(), &corev1.ConfigMap{}, ns)
		}))
	}
	close(stop)
	if err := within(t, listed); err != nil {
		t.Error(err)
	}
	r.end(l)
	r.expectInformers(0, 0)
}

// updates adds a handler that sends the names of the ConfigMaps that are changed in a namespace.
func (r *scopeEnv) updates(m *Manager, namespace string) <-chan string {
	r.t.Helper()
	informer, err := m.GetCache().GetInformer(r.t.Context(), &corev1.ConfigMap{})
	testenv.Must(r.t, err)
	names := make(chan string, 100)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) {
		if obj, ok := now.(client.Object); ok && obj.GetNamespace() == namespace {
			names <- obj.GetName()
		}
	}})
	testenv.Must(r.t, err)
	return names
}

func TestIndexesMayComeAfterTheFirstUse(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	made := r.configMap(ns, "a")
	made.Labels = map[string]string{"color": "red"}
	testenv.Must(t, r.client.Update(t.Context(), made))
	for range 2 {
		l := r.begin(Options{}, func(m *Manager) { within(t, r.listen(m.GetCache(), &corev1.ConfigMap{}, ns)) })
		r.byLabel(l.Manager, "color")
		if n := r.found(l.Manager, ns, "red"); n != 1 {
			t.Errorf("found %d by the field, want 1", n)
		}
		if err := l.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "label", noValues); err == nil {
			t.Error("the same field twice: got no error")
		}
		informer, err := l.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
		testenv.Must(t, err)
		testenv.Must(t, informer.AddIndexers(toolscache.Indexers{"byName": func(obj any) ([]string, error) {
			if m, ok := obj.(client.Object); ok {
				return []string{m.GetName()}, nil
			}
			return nil, nil
		}}))
		indexed, ok := informer.(toolscache.SharedIndexInformer)
		if !ok {
			t.Fatalf("the informer is a %T, want a SharedIndexInformer", informer)
		}
		for name, value := range map[string]string{"byName": "a", "field:label": ns + "/red"} {
			found, err := indexed.GetIndexer().ByIndex(name, value)
			keys, keysErr := indexed.GetIndexer().IndexKeys(name, value)
			if len(found) == 0 || len(keys) != len(found) || errors.Join(err, keysErr) != nil {
				t.Errorf("the index %s has %d objects and the keys %v: %v", name, len(found), keys, errors.Join(err, keysErr))
			}
		}
		if values := indexed.GetIndexer().ListIndexFuncValues("byName"); !slices.Contains(values, "a") {
			t.Errorf("the index byName has the values %v, want a among them", values)
		}
		r.expectInformers(1, 1)
		r.end(l)
		r.expectInformers(0, 0)
	}
}

// Callers of controller-runtime's caches expect these properties of an informer.
func TestAnInformerHasSyncedAndIsAnIndexer(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	made := r.configMap(ns, "a")
	l := r.begin(Options{}, func(*Manager) {})
	first, err := l.GetCache().GetInformer(t.Context(), made)
	testenv.Must(t, err)
	second, err := l.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	testenv.Must(t, err)
	if first != second {
		t.Error("one kind has two informers")
	}
	if !first.HasSynced() {
		t.Error("the informer has not synced")
	}
	indexed, ok := first.(toolscache.SharedIndexInformer)
	if !ok {
		t.Fatalf("the informer is a %T, want a SharedIndexInformer", first)
	}
	if _, there, err := indexed.GetIndexer().GetByKey(ns + "/a"); !there || err != nil {
		t.Errorf("the object is in the store: %t, %v", there, err)
	}
	seen := make(chan string, 1)
	registration, err := indexed.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) {
		select {
		case seen <- "":
		default: // Other tests create objects too, and a handler that blocks would delay the stop.
		}
	}})
	testenv.Must(t, err)
	within(t, seen)
	testenv.Must(t, indexed.RemoveEventHandler(registration))
	r.end(l)
	if !indexed.IsStopped() {
		t.Error("the informer does not say that it has stopped")
	}
	r.expectInformers(0, 0)
}

// TestScopeOverridesEveryManagerMethod fails if controller-runtime adds a method to its manager that a scope does not
// override. The embedded manager's method would silently bypass the scope.
func TestScopeOverridesEveryManagerMethod(t *testing.T) {
	outside := map[string]string{
		"Elected":             "the leader is that of the process",
		"GetConfig":           "where the API server is; what is made of it has no end that a scope could bring",
		"GetEventRecorder":    "events outlive the controller that they are about",
		"GetEventRecorderFor": "events outlive the controller that they are about",
		"GetLogger":           "has no state",
		"GetScheme":           "has no state",
	}
	own := map[string]bool{}
	names, err := filepath.Glob("*.go")
	testenv.Must(t, err)
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		testenv.Must(t, err)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && receiverName(f.Recv.List[0].Type) == "Manager" {
				own[f.Name.Name] = true
			}
		}
	}
	for method := range reflect.TypeFor[manager.Manager]().Methods() {
		if why, listed := outside[method.Name]; own[method.Name] == listed {
			t.Errorf("%s: declared by the scope's manager is %t, listed as one of the outer manager is %t (%s): give the scope one of its own, or say why not",
				method.Name, own[method.Name], listed, why)
		}
	}
}

// receiverName returns the name of a receiver's type.
func receiverName(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}
