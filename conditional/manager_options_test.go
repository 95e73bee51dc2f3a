// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// managerWith returns a manager without servers. Groups inherit its options.
func (s *apiServer) managerWith(cfg *rest.Config, o ctrl.Options) manager.Manager {
	s.t.Helper()
	return s.newManagerFor(cfg, func(base *ctrl.Options) {
		base.Cache, base.Client = o.Cache, o.Client
	})
}

// setUp adds a group of the kind to the manager.
func (s *apiServer) setUp(mgr manager.Manager, setup SetupFunc, opts ...Option) *Group {
	s.t.Helper()
	group := mustSetUp(s.t, mgr, Served(widgetKind()), setup, opts...)
	return group
}

func (s *apiServer) namespace(name string) {
	s.t.Helper()
	testenv.Must(s.t, s.newClient().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// label creates a Widget with the label that the selectors of these tests match.
func (s *apiServer) label(namespace, name string) {
	s.t.Helper()
	w := newWidget()
	w.SetNamespace(namespace)
	w.SetName(name)
	w.SetLabels(map[string]string{"mine": "yes"})
	s.createSoon(w)
}

// all returns a setup function whose reconciler sends the names of all objects for which it receives events.
func all(kind client.Object, seen chan<- string) SetupFunc {
	return func(mgr manager.Manager) error {
		return ctrl.NewControllerManagedBy(mgr).For(kind).Named("all").Complete(reconcile.Func(
			func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				select {
				case seen <- req.String():
				case <-ctx.Done():
				}
				return reconcile.Result{}, nil
			}))
	}
}

func TestScopesInheritNamespacesAndSelectors(t *testing.T) {
	s := startAPIServer(t)
	for _, name := range []string{"a", "b", "other"} {
		s.namespace(name)
	}
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	cases := map[string]struct {
		missing bool // missing is true if the CRD is installed after the manager is created
		opts    cache.Options
		want    []string
	}{
		"default namespaces: inherited": {
			opts: cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}, "b": {}}},
			want: []string{"a/mine", "a/plain", "b/mine", "b/plain"},
		},
		"a label selector for the kind: inherited": {
			opts: cache.Options{ByObject: map[client.Object]cache.ByObject{newWidget(): {Label: labels.SelectorFromSet(labels.Set{"mine": "yes"})}}},
			want: []string{"a/mine", "b/mine", "other/mine"},
		},
		"a label selector and a namespace for a missing kind: inherited": {
			missing: true,
			opts: cache.Options{ByObject: map[client.Object]cache.ByObject{newWidget(): {
				Label: labels.SelectorFromSet(labels.Set{"mine": "yes"}), Namespaces: map[string]cache.Config{"b": {}},
			}}},
			want: []string{"b/mine"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := &apiServer{t: t, env: s.env, cfg: rest.CopyConfig(s.cfg), scheme: s.scheme}
			if !c.missing {
				s.installCRD(def)
			}
			mgr := s.managerWith(s.cfg, ctrl.Options{Cache: c.opts})
			seen := make(chan string, 100)
			group := s.setUp(mgr, all(newWidget(), seen))
			s.startManager(mgr)
			if c.missing {
				s.waitForCondition(group, False, "")
				s.installCRD(def)
			}
			for _, namespace := range []string{"other", "a", "b"} {
				s.createWidgetIn(namespace, "plain")
				s.label(namespace, "mine")
			}
			s.waitForPhase(group, Running)
			got := map[string]bool{}
			s.eventually("what is configured is seen", func(context.Context) (bool, error) {
				for len(seen) > 0 {
					got[<-seen] = true
				}
				return containsAll(got, c.want), nil
			})
			for _, name := range c.want {
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("seen besides %v: %v", c.want, got)
			}
			s.uninstallCRD(def)
			s.waitForPhase(group, Dormant)
			s.waitUntilGone(def)
		})
	}
}

func containsAll(got map[string]bool, want []string) bool {
	for _, name := range want {
		if !got[name] {
			return false
		}
	}
	return true
}

// TestAKindLeftOutIsRefusedOutside installs a CRD after the manager is created. The manager's cache has no selector for
// the kind, so it must reject the kind instead of watching all of its objects.
func TestAKindLeftOutIsRefusedOutside(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.managerWith(s.cfg, ctrl.Options{Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
		newWidget(): {Label: labels.SelectorFromSet(labels.Set{"mine": "yes"})},
	}}})
	s.startManager(mgr)
	s.installCRD(newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped))
	_, err := mgr.GetCache().GetInformer(t.Context(), newWidget())
	if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "conditional group") {
		t.Errorf("an informer: got %v, want an error that names the group's cache", err)
	}
	if err := mgr.GetCache().Get(t.Context(), client.ObjectKey{Name: "x"}, newWidget()); err == nil || !strings.Contains(err.Error(), "ByObject") {
		t.Errorf("a read: got %v, want an error that names ByObject", err)
	}
}

// TestTheOuterClientFollowsAKindThatMoves uses a client that was taken from the manager before the setup function ran,
// while the kind changes its scope and its plural.
func TestTheOuterClientFollowsAKindThatMoves(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.managerWith(s.cfg, ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}})
	captured := mgr.GetClient()
	group := s.setUp(mgr, all(newWidget(), make(chan string, 100)))
	s.startManager(mgr)
	for _, shape := range []struct {
		namespace string
		def       *apiextensionsv1.CustomResourceDefinition
	}{
		{"default", newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)},
		{"", newWidgetCRD("widgets", apiextensionsv1.ClusterScoped)},
		{"", newWidgetCRD("widgetz", apiextensionsv1.ClusterScoped)},
	} {
		s.installCRD(shape.def)
		s.waitForPhase(group, Running)
		s.createWidgetIn(shape.namespace, "w")
		key := client.ObjectKey{Namespace: shape.namespace, Name: "w"}
		w := newWidget()
		s.eventually("the captured client reads", func(ctx context.Context) (bool, error) { return captured.Get(ctx, key, w) == nil, nil })
		w.SetAnnotations(map[string]string{"written": shape.def.Name})
		if err := captured.Update(t.Context(), w); err != nil {
			t.Errorf("%s, scope %s: the captured client does not write: %v", shape.def.Name, shape.def.Spec.Scope, err)
		}
		s.uninstallCRD(shape.def)
		s.waitForPhase(group, Dormant)
		s.waitUntilGone(shape.def)
		if err := captured.Get(t.Context(), key, w); !meta.IsNoMatchError(err) {
			t.Errorf("a read of an absent kind: got %v, want a NoKindMatchError", err)
		}
		if err := mgr.GetCache().Get(t.Context(), key, w); !meta.IsNoMatchError(err) {
			t.Errorf("a cached read of an absent kind: got %v, want a NoKindMatchError", err)
		}
	}
}

// readYourWritesReconciler writes an object and reads it immediately, many times, and counts the results. It does so
// again when its group drains.
type readYourWritesReconciler struct {
	client   client.Client
	told     chan error
	draining chan struct{}
}

func (r *readYourWritesReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.client.Get(ctx, req.NamespacedName, newWidget()); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.told <- r.writeAndRead(ctx, req.NamespacedName)
	<-r.draining
	r.told <- r.writeAndRead(ctx, req.NamespacedName)
	return reconcile.Result{}, nil
}

func (r *readYourWritesReconciler) writeAndRead(ctx context.Context, key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	for i := range 20 {
		want := strconv.Itoa(i)
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if _, err := controllerutil.CreateOrUpdate(ctx, r.client, cm, func() error {
			cm.Data = map[string]string{"round": want}
			return nil
		}); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		var now corev1.ConfigMap
		if err := r.client.Get(ctx, key, &now); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if now.Data["round"] != want {
			return fmt.Errorf("read round %q after round %q was written", now.Data["round"], want)
		}
	}
	return nil
}

func (r *readYourWritesReconciler) SetupWithManager(mgr manager.Manager) error {
	r.client = mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).For(newWidget()).Named("consistent").Complete(finishing(r))
}

// TestReadYourWritesAcrossRestarts restarts a group while another controller shares its informer, so the informer
// outlives the scopes.
func TestReadYourWritesAcrossRestarts(t *testing.T) {
	options := &client.CacheOptions{}
	option := reflect.ValueOf(options).Elem().FieldByName("EnableReadYourWritesConsistency")
	if !option.IsValid() {
		t.Skip("this version of controller-runtime has no client that reads its own writes: see version 0.25")
	}
	option.Set(reflect.ValueOf(new(true)))
	s := startAPIServer(t)
	mgr := s.managerWith(s.cfg, ctrl.Options{Client: client.Options{Cache: options}})
	r := &readYourWritesReconciler{told: make(chan error, 10), draining: make(chan struct{})}
	group := s.setUp(mgr, r.SetupWithManager, DrainTimeout(patience))
	mustSetUp(t, mgr, ServedObject(&corev1.ConfigMap{}), all(&corev1.ConfigMap{}, make(chan string, 1000)), Name("neighbour"))
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	for _, name := range []string{"one", "two", "three"} {
		s.installCRD(def)
		s.createWidgetIn("default", name)
		s.consistent(r, name+" while the group runs")
		s.uninstallCRD(def)
		s.waitForPhase(group, Draining)
		r.draining <- struct{}{}
		s.consistent(r, name+" while the group drains")
		s.waitForPhase(group, Dormant)
		s.waitUntilGone(def)
	}
}

func (s *apiServer) consistent(r *readYourWritesReconciler, when string) {
	s.t.Helper()
	select {
	case err := <-r.told:
		if err != nil {
			s.t.Errorf("%s: %v", when, err)
		}
	case <-time.After(patience):
		s.t.Fatalf("%s: a read hangs", when)
	}
}
