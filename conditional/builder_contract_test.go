// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// contractBuilder is the common interface of both builders. The tests below call both builders in the same way, and
// compare the results.
type contractBuilder[B any] interface {
	contractSources[B]
	contractOptions[B]
	Complete(reconcile.Reconciler) error
}

type contractOptions[B any] interface {
	WithEventFilter(predicate.Predicate) B
	WithOptions(controller.Options) B
	WithLogConstructor(func(*reconcile.Request) logr.Logger) B
	Named(string) B
}

type contractSources[B any] interface {
	For(client.Object, ...builder.ForOption) B
	Owns(client.Object, ...builder.OwnsOption) B
	Watches(client.Object, handler.EventHandler, ...builder.WatchesOption) B
	WatchesMetadata(client.Object, handler.EventHandler, ...builder.WatchesOption) B
	WatchesRawSource(source.Source) B
}

// differences explains each result in which the builders differ. The manual contains this table.
func differences() map[string]string {
	return map[string]string{
		"no For, but Named and a raw source":                     "there is no kind to wait for: use `Setup`",
		"a source that cannot be started twice":                  "use `conditional.Kind`, or create the source in a `source.Func`",
		"NeedLeaderElection: false":                              "a group runs on the leader only",
		"EnableWarmup":                                           "a group starts on the leader only",
		"the manager, if the CRD is missing at the sync timeout": "the purpose of the library",
		"result of Build":                                        "there is a controller per start, and none while the group is dormant",
		"typed requests":                                         "use `Setup` with controller-runtime's builder",
		"a name with a space":                                    "a name is one word in logs and metrics",
		"a manager of `ctrl.NewManager`":                         "its client would not follow the group: use `conditional.NewManager`",
	}
}

const (
	accepted = "accepted"
	refused  = "refused"
)

func verdictOf(err error) string {
	if err != nil {
		return refused
	}
	return accepted
}

// contractAtSetup returns the results of correct and incorrect uses. Every name has a prefix, because
// controller-runtime never frees a name.
func contractAtSetup[B contractBuilder[B]](t *testing.T, prefix string, start func(manager.Manager) B) map[string]string {
	mgr := offline(t)
	r := reconcile.Reconciler(reconcile.Func(nil))
	widgets := func(name string) B { return start(mgr).For(&Widget{}).Named(prefix + name) }
	toObject := &handler.EnqueueRequestForObject{}
	kind := source.Kind(mgr.GetCache(), client.Object(&corev1.Pod{}), toObject)
	withReconciler := controller.Options{Reconciler: r}
	var none manager.Manager
	ofOther, err := ctrl.NewManager(mgr.GetConfig(), ctrl.Options{Scheme: mgr.GetScheme(), Metrics: server.Options{BindAddress: "0"}})
	testenv.Must(t, err)
	got := map[string]string{
		"no manager":                                             verdictOf(start(none).For(&Widget{}).Complete(r)),
		"a manager of `ctrl.NewManager`":                         verdictOf(start(ofOther).For(&Widget{}).Named(prefix + "w").Complete(r)),
		"no reconciler":                                          verdictOf(widgets("a").Complete(nil)),
		"a reconciler in WithOptions, too":                       verdictOf(widgets("b").WithOptions(withReconciler).Complete(r)),
		"For":                                                    verdictOf(widgets("c").Complete(r)),
		"two calls of For":                                       verdictOf(widgets("d").For(&corev1.Pod{}).Complete(r)),
		"For with OnlyMetadata":                                  verdictOf(start(mgr).For(&Widget{}, builder.OnlyMetadata).Named(prefix + "e").Complete(r)),
		"neither For nor Named":                                  verdictOf(start(mgr).Watches(&corev1.Pod{}, toObject).Complete(r)),
		"no For, but Named and Watches":                          verdictOf(start(mgr).Named(prefix+"f").Watches(&corev1.Pod{}, toObject).Complete(r)),
		"no For, but Named and WatchesMetadata":                  verdictOf(start(mgr).Named(prefix+"g").WatchesMetadata(&corev1.Pod{}, toObject).Complete(r)),
		"no For, but Named and a raw source":                     verdictOf(start(mgr).Named(prefix + "h").WatchesRawSource(source.Func(nil)).Complete(r)),
		"no kinds and no sources":                                verdictOf(start(mgr).Named(prefix + "i").Complete(r)),
		"Owns without For":                                       verdictOf(start(mgr).Named(prefix + "j").Owns(&corev1.Pod{}).Complete(r)),
		"For with a type that is not in the scheme":              verdictOf(start(mgr).For(&appsv1.Deployment{}).Named(prefix + "k").Complete(r)),
		"the name of another controller":                         verdictOf(widgets("c").Complete(r)),
		"the name of another controller with SkipNameValidation": verdictOf(widgets("c").WithOptions(controller.Options{SkipNameValidation: new(true)}).Complete(r)),
		"a name with a slash":                                    verdictOf(widgets("l/m").Complete(r)),
		"a name with a space":                                    verdictOf(widgets("n o").Complete(r)),
		"a name with braces":                                     verdictOf(widgets("{p}").Complete(r)),
		"a source that cannot be started twice":                  verdictOf(widgets("q").WatchesRawSource(kind).Complete(r)),
		"NeedLeaderElection: false":                              verdictOf(widgets("r").WithOptions(controller.Options{NeedLeaderElection: new(false)}).Complete(r)),
		"EnableWarmup":                                           verdictOf(widgets("s").WithOptions(controller.Options{EnableWarmup: new(true)}).Complete(r)),
		"a client in an exported field":                          verdictOf(widgets("t").Complete(&widgetReconciler{Client: mgr.GetClient()})),
		"a client in an unexported field":                        verdictOf(widgets("u").Complete(&hiddenClient{hidden: mgr.GetClient()})),
		"a client in a wrapper":                                  verdictOf(widgets("v").Complete(&widgetReconciler{Client: client.WithFieldOwner(mgr.GetClient(), "me")})),
	}
	return got
}

// contractAtRun starts several controllers of one builder together, and returns the result of each.
func contractAtRun[B contractBuilder[B]](s *apiServer, prefix string, start func(manager.Manager) B) map[string]string {
	mgr := s.newManagerFor(s.cfg, func(o *ctrl.Options) {
		o.Controller.GroupKindConcurrency = map[string]int{"Widget.example.com": 3}
	})
	seen := map[string]*contractReconciler{}
	add := func(name string, build func(B) B) {
		r := &contractReconciler{names: map[string]bool{}}
		seen[name] = r
		testenv.Must(s.t, build(start(mgr).Named(prefix+strings.ReplaceAll(name, " ", "-"))).Complete(r))
	}
	only := func(name string) predicate.Predicate {
		return predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == name })
	}
	toOne := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("%T:%s", obj, obj.GetName())}}}
	})
	noLog := func(*reconcile.Request) logr.Logger { return logr.Discard() }
	add("For", func(b B) B { return b.For(&Widget{}) })
	add("predicates of For", func(b B) B { return b.For(&Widget{}, builder.WithPredicates(only("one"))) })
	add("an event filter", func(b B) B { return b.For(&Widget{}).Owns(&corev1.ConfigMap{}).WithEventFilter(only("two")) })
	add("Owns of the controller", func(b B) B { return b.For(&Widget{}, builder.WithPredicates(only("none"))).Owns(&corev1.ConfigMap{}) })
	add("Owns of every owner", func(b B) B {
		return b.For(&Widget{}, builder.WithPredicates(only("none"))).Owns(&corev1.ConfigMap{}, builder.MatchEveryOwner)
	})
	add("Watches", func(b B) B {
		return b.For(&Widget{}, builder.WithPredicates(only("none"))).Watches(&corev1.ConfigMap{}, toOne, builder.WithPredicates(only("child")))
	})
	add("WatchesMetadata", func(b B) B {
		return b.For(&Widget{}, builder.WithPredicates(only("none"))).WatchesMetadata(&corev1.ConfigMap{}, toOne, builder.WithPredicates(only("child")))
	})
	add("a log constructor", func(b B) B { return b.For(&Widget{}).WithLogConstructor(noLog) })
	add("MaxConcurrentReconciles", func(b B) B {
		return b.For(&Widget{}).WithOptions(controller.Options{MaxConcurrentReconciles: 2, SkipNameValidation: new(true)})
	})
	s.startManager(mgr)
	got := map[string]string{}
	for name, r := range seen {
		s.eventually(name+" is reconciled", func(context.Context) (bool, error) { return len(r.all()) >= expectedNames(name), nil })
		got[name] = strings.Join(r.all(), ", ")
	}
	for _, name := range []string{"For", "MaxConcurrentReconciles"} {
		got["workers of "+name] = fmt.Sprint(maxConcurrent(s.t, prefix+name))
	}
	return got
}

func expectedNames(spec string) int {
	switch spec {
	case "For", "Owns of every owner", "a log constructor", "MaxConcurrentReconciles":
		return 2
	}
	return 1
}

// hiddenClient has its client in an unexported field.
type hiddenClient struct {
	reconcile.Reconciler
	hidden client.Client
}

// contractReconciler records the names of the reconciled objects.
type contractReconciler struct {
	mu    sync.Mutex
	names map[string]bool
}

func (r *contractReconciler) Reconcile(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[req.Name] = true
	return reconcile.Result{}, nil
}

func (r *contractReconciler) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.names))
}

func maxConcurrent(t *testing.T, name string) (found float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "controller_runtime_max_concurrent_reconciles" && m.GetLabel()[0].GetValue() == name {
				found = m.GetGauge().GetValue()
			}
		}
	}
	return found
}

// TestDifferencesOfTheBuilders compares the setup of both builders, and checks the table in the manual against the
// result. TORPOR_UPDATE=1 writes the table.
func TestDifferencesOfTheBuilders(t *testing.T) {
	plain := contractAtSetup(t, "plain-", ctrl.NewControllerManagedBy)
	ours := contractAtSetup(t, "ours-", NewControllerManagedBy)
	plain["typed requests"], ours["typed requests"] = "`TypedControllerManagedBy`", "none"
	plain["result of Build"], ours["result of Build"] = "a `controller.Controller`", "a `*conditional.Group`"
	// See TestAMissingCRDOutlastsTheSyncTimeout.
	plain["the manager, if the CRD is missing at the sync timeout"], ours["the manager, if the CRD is missing at the sync timeout"] = "ends", "keeps running"
	why := differences()
	var table strings.Builder
	fmt.Fprintf(&table, "Of %d uses, %d have the same result. The others:\n\n| use | controller-runtime | conditional | why |\n|---|---|---|---|\n", len(plain), len(plain)-len(why))
	for _, use := range slices.Sorted(maps.Keys(plain)) {
		reason, listed := why[use]
		if listed != (plain[use] != ours[use]) {
			t.Errorf("%s: controller-runtime %s, conditional %s; listed as a difference is %t", use, plain[use], ours[use], listed)
		}
		if listed {
			fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", use, plain[use], ours[use], reason)
		}
	}
	const file, begin, end = "docs/manual.md", "<!-- begin: generated from TestDifferencesOfTheBuilders -->\n", "<!-- end of the differences -->"
	page, err := os.ReadFile(file)
	testenv.Must(t, err)
	head, rest, begun := strings.Cut(string(page), begin)
	got, tail, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("expected %q and %q in %s", begin, end, file)
	}
	if os.Getenv("TORPOR_UPDATE") == "1" {
		testenv.Must(t, os.WriteFile(file, []byte(head+begin+table.String()+end+tail), 0o644))
		return
	}
	if diff := cmp.Diff(table.String(), got); diff != "" {
		t.Errorf("expected %s to have the differences; run with TORPOR_UPDATE=1 (-want +got):\n%s", file, diff)
	}
}

// TestTheBuildersReconcileTheSame runs the uses that both builders support.
func TestTheBuildersReconcileTheSame(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	s.installCRD(newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped))
	one, two := s.createWidget("one"), s.createWidget("two")
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "child"}}
	testenv.Must(t, ctrl.SetControllerReference(one, child, s.scheme))
	child.OwnerReferences = append(child.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "two", UID: two.UID})
	testenv.Must(t, s.newClient().Create(t.Context(), child))
	plain := contractAtRun(s, "plain-", ctrl.NewControllerManagedBy)
	ours := contractAtRun(s, "ours-", NewControllerManagedBy)
	if diff := cmp.Diff(plain, ours); diff != "" {
		t.Errorf("reconciled (-controller-runtime +conditional):\n%s", diff)
	}
	want := map[string]string{
		"For": "one, two", "predicates of For": "one", "an event filter": "two", "Owns of the controller": "one", "Owns of every owner": "one, two",
		"Watches": "*v1.ConfigMap:child", "WatchesMetadata": "*v1.PartialObjectMetadata:child", "a log constructor": "one, two",
		"MaxConcurrentReconciles": "one, two", "workers of For": "3", "workers of MaxConcurrentReconciles": "2",
	}
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Errorf("reconciled (-want +controller-runtime):\n%s", diff)
	}
}
