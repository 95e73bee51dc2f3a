// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// The tests below cover the promises of the manual to a project that switches to this package.

const ownerField = ".metadata.controller"

// indexingReconciler is structured like the CronJob tutorial: it indexes a built-in kind before it builds the
// controller, and lists by the index.
type indexingReconciler struct {
	client.Client
	listed chan error
}

func (r *indexingReconciler) SetupWithManager(mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, ownerField, func(obj client.Object) []string {
		if owner := metav1.GetControllerOf(obj); owner != nil {
			return []string{owner.Name}
		}
		return nil
	}); err != nil {
		return err
	}
	return NewControllerManagedBy(mgr).For(&Widget{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

func (r *indexingReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var w Widget
	if err := r.Get(ctx, req.NamespacedName, &w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	if err := ctrl.SetControllerReference(&w, child, r.Scheme()); err != nil {
		return reconcile.Result{}, err
	}
	if err := client.IgnoreAlreadyExists(r.Create(ctx, child)); err != nil {
		return reconcile.Result{}, err
	}
	var children corev1.ConfigMapList
	err := r.List(ctx, &children, client.InNamespace(w.Namespace), client.MatchingFields{ownerField: w.Name})
	if err == nil && len(children.Items) != 1 {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // The ConfigMap is not in the cache yet.
	}
	r.listed <- err
	return reconcile.Result{}, nil
}

func TestIndexBeforeTheBuilderExistsAfterEachStart(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg)
	r := &indexingReconciler{Client: mgr.GetClient(), listed: make(chan error, 100)}
	testenv.Must(t, r.SetupWithManager(mgr))
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	for _, life := range []string{"first", "second"} {
		s.installCRD(def)
		s.createWidget(life)
		select {
		case err := <-r.listed:
			testenv.Must(t, err)
		case <-time.After(patience):
			t.Fatal("nothing is listed")
		}
		s.uninstallCRD(def)
		s.waitUntilGone(def)
	}
	var all corev1.ConfigMapList
	byField := client.MatchingFields{ownerField: "first"}
	testenv.Must(t, mgr.GetClient().List(t.Context(), &all, byField)) // The manager's own reads can use the index, too.
}

func TestSetupRefusesOptionsWithoutEffect(t *testing.T) {
	mgr := offline(t)
	plain := func(name string) {
		testenv.Must(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Named(name).Complete(reconcile.Func(nil)))
	}
	plain("twin")
	r := reconcile.Func(nil)
	widgets := func(name string) *Builder { return NewControllerManagedBy(mgr).For(&Widget{}).Named(name) }
	for name, c := range map[string]struct {
		build *Builder
		want  string
	}{
		"WatchNamed with a CRD of another API group: refused": {widgets("a").WithGroup(WatchNamed("widgets.exmaple.com")), `"widgets.exmaple.com"`},
		"NeedLeaderElection is false: refused":                {widgets("b").WithOptions(controller.Options{NeedLeaderElection: new(false)}), "NeedLeaderElection"},
		"EnableWarmup is true: refused":                       {widgets("c").WithOptions(controller.Options{EnableWarmup: new(true)}), "leave the option out"},
		"the name of a plain controller: refused":             {widgets("twin"), "controller with name twin already exists"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.build.Complete(r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	g, err := widgets("earlier").WithGroup(WatchNamed("widgets.example.com")).Build(r)
	testenv.Must(t, err)
	defer g.release()
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Named("earlier").Complete(r); err == nil {
		t.Error("a plain controller took the name of a conditional one")
	}
	for _, in := range []func(){
		func() { ctrl.NewControllerManagedBy(mgr).For(&Widget{}, IfServed) },
		func() { ctrl.NewControllerManagedBy(mgr).For(&Widget{}, Poll(time.Second)) },
		func() { ctrl.NewControllerManagedBy(mgr).For(&Widget{}).Owns(&corev1.Pod{}, IfServed) },
		func() { ctrl.NewControllerManagedBy(mgr).For(&Widget{}).Watches(&corev1.Pod{}, nil, IfServed) },
	} {
		if !panics(in) {
			t.Error("controller-runtime's builder took an option that it cannot heed")
		}
	}
	if err := g.Checker(ReadyPolicy(7))(nil); err == nil {
		t.Error("an unknown policy is ready")
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// TestForAcceptsTheOptionsOfTheProposal uses the builder as in the proposal: one option of For enables the condition,
// and another one sets the interval of discovery queries. Options of controller-runtime are passed through.
func TestForAcceptsTheOptionsOfTheProposal(t *testing.T) {
	mgr := offline(t)
	var passed []builder.ForOption
	b := NewControllerManagedBy(mgr).For(&Widget{}, builder.WithPredicates(), IfServed, Poll(3*time.Second), builder.OnlyMetadata)
	passed = b.forOptions
	if len(passed) != 2 {
		t.Errorf("controller-runtime gets %d options, want its own two", len(passed))
	}
	g, err := b.Build(reconcile.Func(nil))
	testenv.Must(t, err)
	defer g.release()
	if got := g.optional.Poll; got != 3*time.Second {
		t.Errorf("discovery is asked every %s, want 3s", got)
	}
}

// TestAMissingCRDOutlastsTheSyncTimeout covers the first acceptance criterion of the proposal. The CRD is missing for
// longer than the timeout after which a plain manager would exit.
func TestAMissingCRDOutlastsTheSyncTimeout(t *testing.T) {
	const timeout = time.Second
	for name, setup := range map[string]func(*widgetReconciler, manager.Manager) error{
		"plain builder: the manager exits":               (*widgetReconciler).SetupWithManager,
		"conditional builder: the manager keeps running": (*widgetReconciler).SetupConditionally,
	} {
		t.Run(name, func(t *testing.T) {
			s := startAPIServer(t)
			addWidgets(s.scheme)
			probes := testenv.FreeAddress(t)
			mgr := s.newManagerFor(s.cfg, func(o *ctrl.Options) {
				o.Controller = config.Controller{CacheSyncTimeout: timeout, SkipNameValidation: new(true)}
				o.HealthProbeBindAddress = probes
			})
			testenv.Must(t, mgr.AddReadyzCheck("ping", healthz.Ping))
			testenv.Must(t, setup(newWidgetReconciler(mgr), mgr))
			neighbour := make(chan string, 1000)
			testenv.Must(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("neighbour").Complete(
				reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
					neighbour <- req.Name
					return reconcile.Result{}, nil
				})))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- mgr.Start(ctx) }()
			if name == "plain builder: the manager exits" {
				select {
				case err := <-ended:
					if err == nil || !strings.Contains(err.Error(), "timed out") {
						t.Errorf("the plain manager ended with %v, want a time-out", err)
					}
				case <-time.After(patience):
					t.Error("the plain manager lives on without the CRD: this test shows nothing")
				}
				return
			}
			select {
			case err := <-ended:
				t.Fatalf("the manager ended: %v", err)
			case <-time.After(5 * timeout):
			}
			s.createConfigMap("late")
			s.expectReconcile(neighbour, "late")
			s.eventually("the manager is ready", func(ctx context.Context) (bool, error) { return isReady(ctx, probes) })
			cancel()
			testenv.Must(t, <-ended)
			mgr.GetHTTPClient().CloseIdleConnections()
		})
	}
}

func isReady(ctx context.Context, address string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return false, err
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return false, nil
	}
	return answer.StatusCode == http.StatusOK, errors.Join(answer.Body.Close())
}

// TestHandlersInOtherCachesGoWithTheStop adds handlers to another cluster's cache and to the outer manager's cache.
func TestHandlersInOtherCachesGoWithTheStop(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.cfg)
	other, err := cluster.New(s.cfg, func(o *cluster.Options) { o.Scheme = s.scheme })
	testenv.Must(t, err)
	testenv.Must(t, mgr.Add(other))
	var calls atomic.Int64
	count := handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.ConfigMap) []reconcile.Request {
		calls.Add(1)
		return nil
	})
	run := make(chan bool)
	g := mustSetUp(t, mgr, signal("run", run), func(scoped manager.Manager) error {
		return ctrl.NewControllerManagedBy(scoped).Named("handlers").
			WatchesRawSource(Kind(other, &corev1.ConfigMap{}, count)).
			WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, count)).
			Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	}, RestartLimit(1000, wait.Backoff{Duration: time.Second}))
	s.startManager(mgr)
	s.createConfigMap("first")
	cycle := func() {
		calls.Store(0)
		run <- true
		s.waitForPhase(g, Running)
		s.eventually("both handlers are called", func(context.Context) (bool, error) { return calls.Load() >= 2, nil })
		run <- false
		s.waitForPhase(g, Dormant)
	}
	for range 3 { // Shared resources are created by the first start.
		cycle()
	}
	before := runtime.NumGoroutine()
	for range 20 {
		cycle()
	}
	s.eventually("the goroutines of the handlers are gone", func(context.Context) (bool, error) { return runtime.NumGoroutine() <= before+3, nil })
	calls.Store(0)
	s.createConfigMap("late")
	s.eventually("the manager has seen it", func(ctx context.Context) (bool, error) {
		return other.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "late"}, &corev1.ConfigMap{}) == nil, nil
	})
	if got := calls.Load(); got != 0 {
		t.Errorf("handlers of ended starts were called %d times", got)
	}
}
