// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func (s *apiServer) createWidget(name string) *Widget {
	s.t.Helper()
	w := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: testenv.CustomSpec{Message: "hello"}}
	s.createSoon(w)
	return w
}

// message returns the message in a Widget's ConfigMap, or an empty string if there is none.
func (s *apiServer) message(ctx context.Context, name string) string {
	var child corev1.ConfigMap
	if err := s.newClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &child); err != nil {
		return ""
	}
	return child.Data["message"]
}

func TestBuilderFollowsItsCRD(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg)
	r := newWidgetReconciler(mgr) // This is the outer client, as in every main.go.
	testenv.Must(t, r.SetupConditionally(mgr))
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	for _, name := range []string{"installed", "reinstalled", "once-more"} {
		s.installCRD(def)
		s.createWidget(name)
		s.expectReconcile(r.seen, name)
		says := func(ctx context.Context) (bool, error) { return s.message(ctx, name) == "hello", nil }
		s.eventually("the Widget has its ConfigMap", says)
		testenv.Must(t, s.newClient().Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
		s.eventually("the deletion of the ConfigMap reconciles its owner", says)
		s.uninstallCRD(def)
		s.waitUntilGone(def)
	}
}

// TestBuilderReconcilesAsOften causes the same events for a plain and a conditional controller, and compares their
// reconciles.
func TestBuilderReconcilesAsOften(t *testing.T) {
	server := startAPIServer(t)
	addWidgets(server.scheme)
	server.installCRD(newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped))
	told := map[string][]string{}
	for name, setup := range map[string]func(*widgetReconciler, manager.Manager) error{
		"plain":       (*widgetReconciler).SetupWithManager,
		"conditional": (*widgetReconciler).SetupConditionally,
	} {
		var r *widgetReconciler
		t.Run(name, func(t *testing.T) {
			s := *server
			s.t = t
			mgr := s.newManagerFor(s.cfg)
			r = newWidgetReconciler(mgr)
			testenv.Must(t, setup(r, mgr))
			s.startManager(mgr)
			told[name] = s.widgetEvents(r.seen)
		})
		for len(r.seen) > 0 { // The manager has stopped.
			told[name] = append(told[name], "late: "+<-r.seen)
		}
		server.deleteEvents()
	}
	if diff := cmp.Diff(told["plain"], told["conditional"]); diff != "" {
		t.Errorf("reconciled (-plain +conditional):\n%s", diff)
	}
	want := []string{"first", "first", "first", "first", "first", "first", "first", "last", "last"}
	if diff := cmp.Diff(want, told["plain"]); diff != "" {
		t.Errorf("reconciled (-want +plain):\n%s", diff)
	}
}

// widgetEvents changes objects, waits for the reconciles that each change must cause, and returns the reconciled names.
func (s *apiServer) widgetEvents(seen <-chan string) (told []string) {
	s.t.Helper()
	ctx, c := s.t.Context(), s.newClient()
	w := &Widget{}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}}
	steps := []struct {
		do         func() error
		reconciles int
	}{
		{func() error { w = s.createWidget("first"); return nil }, 2}, // The Widget and its ConfigMap each cause a reconcile.
		{func() error { w.Spec.Message = "bye"; return c.Update(ctx, w) }, 2},
		{func() error { return c.Delete(ctx, child) }, 2}, // The ConfigMap is deleted, and the controller creates it again.
		{func() error { return c.Create(ctx, stranger) }, 0},
		{func() error { return c.Delete(ctx, w) }, 1},
		{func() error { w = s.createWidget("last"); return nil }, 2},
		{func() error { return c.Delete(ctx, stranger) }, 0},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			s.t.Fatalf("step %d: %v", i+1, err)
		}
		for range step.reconciles {
			name := ""
			s.eventually("there is a reconcile", func(context.Context) (bool, error) {
				select {
				case name = <-seen:
					return true, nil
				default:
					return false, nil
				}
			})
			told = append(told, name)
		}
	}
	return told
}

// deleteEvents deletes the objects that widgetEvents leaves, because no garbage collector runs.
func (s *apiServer) deleteEvents() {
	s.t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	left := []client.Object{&Widget{ObjectMeta: meta("last")}, &corev1.ConfigMap{ObjectMeta: meta("first")}, &corev1.ConfigMap{ObjectMeta: meta("last")}}
	for _, obj := range left {
		testenv.Must(s.t, s.newClient().Delete(s.t.Context(), obj))
	}
}

// offline returns a manager that has no API server and validates the names of its controllers.
func offline(t *testing.T) manager.Manager {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(scheme))
	addWidgets(scheme)
	mgr, err := NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	testenv.Must(t, err)
	return mgr
}

func TestBuilderRefusesBadUse(t *testing.T) {
	mgr := offline(t)
	r := newWidgetReconciler(mgr)
	taken, _, err := claimed("taken")
	testenv.Must(t, err)
	defer taken()
	plain, err := ctrl.NewManager(mgr.GetConfig(), ctrl.Options{Scheme: mgr.GetScheme(), Metrics: server.Options{BindAddress: "0"}})
	testenv.Must(t, err)
	plainKind := source.Kind(plain.GetCache(), &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{})
	widgets := func() *Builder { return NewControllerManagedBy(mgr).For(&Widget{}) }
	channel := source.Channel(make(chan event.GenericEvent), &handler.EnqueueRequestForObject{})
	cases := map[string]struct {
		build *Builder
		r     reconcile.Reconciler
		want  string
	}{
		"a nil manager: rejected":                                   {NewControllerManagedBy(nil).For(&Widget{}), r, "expected a manager"},
		"a nil reconciler: rejected":                                {widgets(), nil, "expected a reconciler, found nil"},
		"two reconcilers: rejected":                                 {widgets().WithOptions(controller.Options{Reconciler: r}), r, "reconciler was set via WithOptions()"},
		"Owns without For and Named: rejected":                      {NewControllerManagedBy(mgr).Owns(&corev1.Pod{}), r, "found no For"},
		"Named without For: rejected":                               {NewControllerManagedBy(mgr).Named("none"), r, "use conditional.Setup"},
		"two calls of For: rejected":                                {widgets().For(&corev1.Pod{}), r, "found *v1.Pod after *testenv.Custom"},
		"For(nil): rejected":                                        {NewControllerManagedBy(mgr).For(nil), r, "expected an object of the kind in For"},
		"Owns(nil): rejected":                                       {widgets().Owns(nil), r, "expected an object of the kind in Owns"},
		"Named and Owns without For: rejected":                      {NewControllerManagedBy(mgr).Named("x").Owns(&corev1.Pod{}), r, "Owns() can only be used together with For()"},
		"For with a kind that is not in the scheme: rejected":       {NewControllerManagedBy(mgr).For(&appsv1.Deployment{}), r, "AddToScheme"},
		"Owns with a kind that is not in the scheme: rejected":      {widgets().Owns(&appsv1.Deployment{}), r, "AddToScheme"},
		"Watches with a kind that is not in the scheme: rejected":   {widgets().Watches(&appsv1.Deployment{}, &handler.EnqueueRequestForObject{}), r, "AddToScheme"},
		"the name of another group: rejected":                       {widgets().Named("taken"), r, "found another group of this name"},
		"a raw source that can be started only once: rejected":      {widgets().WatchesRawSource(plainKind), r, "expected a source.Func"},
		"a channel without a manager: rejected":                     {NewControllerManagedBy(nil).For(&Widget{}).WatchesRawSource(channel), r, "expected a manager in NewControllerManagedBy"},
		"a manager not created by conditional.NewManager: rejected": {NewControllerManagedBy(plain).For(&Widget{}), r, "expected a manager of conditional.NewManager"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := c.build.Complete(c.r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if release, _, err := claimed("widget"); err != nil {
		t.Errorf("bad use has left something behind: %v", err)
	} else {
		release()
	}
}

// claimed reserves a group's name, without a manager that would run the group.
func claimed(name string) (release func(), g *Group, err error) {
	mgr := newFakeManager()
	g, err = Setup(mgr, switchedCondition{}, func(manager.Manager) error { return nil }, Name(name))
	if err != nil {
		return nil, nil, err
	}
	return g.release, g, nil
}

func TestBuilderTakesTheNameOfItsKind(t *testing.T) {
	mgr := offline(t)
	for want, b := range map[string]*Builder{
		"widget":  NewControllerManagedBy(mgr).For(&Widget{}),
		"mine":    NewControllerManagedBy(mgr).For(&Widget{}).Named("mine"),
		"watcher": NewControllerManagedBy(mgr).Named("watcher").Watches(&Widget{}, &handler.EnqueueRequestForObject{}),
	} {
		g, err := b.Build(newWidgetReconciler(mgr))
		testenv.Must(t, err)
		defer g.release()
		if got := g.Status(); got.Name != want || got.Phase != Dormant {
			t.Errorf("group is %+v, want name %s and Dormant", got, want)
		}
	}
}

// When a group's manager has stopped, another group can take the group's name.
func TestNamesAreFreeAgain(t *testing.T) {
	_, g, err := claimed("again")
	testenv.Must(t, err)
	if _, _, err := claimed("again"); err == nil {
		t.Fatal("two groups of one name, want an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testenv.Must(t, g.host.Start(ctx))
	release, _, err := claimed("again")
	if err != nil {
		t.Fatalf("the name is still taken: %v", err)
	}
	release()
}

// TestBuilderReplaysEveryCall starts a group twice whose builder received every possible call.
func TestBuilderReplaysEveryCall(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	mgr := s.newManagerFor(s.cfg)
	r := newWidgetReconciler(mgr)
	calls := make(chan string, 100)
	raw := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "raw"}})
		return nil
	})
	events := make(chan event.GenericEvent, 1)
	toName := func(prefix string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "default", Name: prefix + obj.GetName()}}}
		})
	}
	g, err := NewControllerManagedBy(mgr).
		For(&Widget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}, builder.MatchEveryOwner).
		Watches(&corev1.Namespace{}, toName("ns-")).
		WatchesMetadata(&corev1.ServiceAccount{}, toName("sa-")).
		WatchesRawSource(raw).
		WatchesRawSource(source.Channel(events, toName("channel-"))).
		WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() != "hidden" })).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2}).
		WithLogConstructor(func(*reconcile.Request) logr.Logger {
			select {
			case calls <- "logger":
			default:
			}
			return logr.Discard()
		}).
		Named("everything").
		Build(r)
	testenv.Must(t, err)
	s.startManager(mgr)
	for _, round := range []string{"one", "two"} {
		events <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "dropped"}}}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: round}}
		testenv.Must(t, s.newClient().Create(t.Context(), account))
		s.installCRD(def)
		s.createWidget("hidden")
		s.createWidget(round)
		missing := map[string]bool{round: true, "ns-default": true, "sa-" + round: true, "raw": true, "channel-" + round: true}
		s.eventually("everything that is watched was reconciled", func(context.Context) (bool, error) {
			select { // Events are dropped until the controller runs.
			case events <- event.GenericEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: round}}}:
			default:
			}
			for len(r.seen) > 0 {
				name := <-r.seen
				if name == "hidden" || name == "channel-dropped" {
					t.Errorf("expected no reconcile of %s, found one", name)
				}
				delete(missing, name)
			}
			return len(missing) == 0, nil
		})
		s.expectReconcile(calls, "logger")
		s.uninstallCRD(def)
		s.waitUntilGone(def)
		s.waitForPhase(g, Dormant)
	}
}
