// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func optionally(kinds ...schema.GroupVersionKind) Options {
	return Options{Optional: detect.Interest{Kinds: kinds}}
}

// routeReconciler creates a Route for each ConfigMap, and marks the Route when it is reconciled.
type routeReconciler struct {
	*scopeEnv
	client    client.Client
	namespace string
	adds      atomic.Int64  // number of ConfigMaps passed to the reconciler's own handler
	marked    chan string   // notes of the Routes that were written
	absent    chan struct{} // receives when a reconcile did not find the Route kind
}

func (o *routeReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Namespace != o.namespace {
		return reconcile.Result{}, nil
	}
	var cm corev1.ConfigMap
	if err := o.client.Get(ctx, req.NamespacedName, &cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	route := &Route{}
	err := o.client.Get(ctx, req.NamespacedName, route)
	if meta.IsNoMatchError(err) {
		o.absent <- struct{}{}
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if route.Spec.Message == "" {
		route.Spec.Message = "seen by " + cm.Name
		if err := o.client.Update(ctx, route); err != nil {
			return reconcile.Result{}, err
		}
		o.marked <- route.Spec.Message
	}
	return reconcile.Result{}, nil
}

// setUp adds a plain controller with the standard builder.
func (o *routeReconciler) setUp(m *Manager) {
	o.t.Helper()
	o.client = m.GetClient()
	err := ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&Route{}).Named("owner").Complete(o)
	testenv.Must(o.t, err)
	o.handle(m, &corev1.ConfigMap{}, func(added client.Object) {
		if added.GetNamespace() == o.namespace {
			o.adds.Add(1)
		}
	})
}

// route creates a Route that belongs to the ConfigMap, with a client without cached results.
func (o *routeReconciler) route(cm *corev1.ConfigMap) {
	o.t.Helper()
	made := &Route{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	testenv.Must(o.t, controllerutil.SetControllerReference(cm, made, o.outer.GetScheme()))
	testenv.Must(o.t, o.freshClient().Create(o.t.Context(), made))
}

func TestAnOptionalKindComesAndGoesUnderARunningController(t *testing.T) {
	r := newScopeEnv(t)
	o := &routeReconciler{scopeEnv: r, namespace: r.namespace(), marked: make(chan string, 100), absent: make(chan struct{}, 1000)}
	r.know(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	cm := r.configMap(o.namespace, "a")
	l := r.begin(optionally(routeKind()), o.setUp)
	within(t, o.absent)
	r.expectInformers(1, 1)
	for _, shape := range []struct {
		plural, namespace string
		scope             apiextensionsv1.ResourceScope
	}{
		{"routes", o.namespace, apiextensionsv1.NamespaceScoped},
		{"routes", "", apiextensionsv1.ClusterScoped},
		{"routez", o.namespace, apiextensionsv1.NamespaceScoped},
	} {
		def := routes(shape.plural, shape.scope)
		r.install(def)
		if shape.namespace != "" { // A ConfigMap cannot own a cluster-scoped object.
			o.route(cm)
			if note := within(t, o.marked); note != "seen by a" {
				t.Errorf("got note %q", note)
			}
		}
		r.expectInformers(2, 2)
		o.expectWrites(l, shape.namespace)
		r.uninstall(def)
		r.expectInformers(1, 1)
		o.expectAbsent(l)
	}
	if o.adds.Load() != 1 {
		t.Errorf("the primary kind's handler saw %d adds, want one: its informer must not be touched", o.adds.Load())
	}
	r.end(l)
	r.expectInformers(0, 0)
}

// expectWrites creates, reads, lists and deletes a Route in every way with the scope's clients.
func (o *routeReconciler) expectWrites(l *runningScope, namespace string) {
	o.t.Helper()
	ctx := o.t.Context()
	key := client.ObjectKey{Namespace: namespace, Name: "written"}
	made := &Route{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "written"}}
	o.eventually("the scope's client can write", func(ctx context.Context) (bool, error) {
		return l.GetClient().Create(ctx, &Route{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "written"}}) == nil, nil
	})
	o.eventually("the scope's cache has it", func(ctx context.Context) (bool, error) {
		return l.GetClient().Get(ctx, key, made) == nil, nil
	})
	var list RouteList
	if err := l.GetClient().List(ctx, &list); err != nil || !slices.ContainsFunc(list.Items, func(r Route) bool { return r.Name == "written" }) {
		o.t.Errorf("list: %v, %d items", err, len(list.Items))
	}
	if err := l.GetAPIReader().Get(ctx, key, made); err != nil {
		o.t.Errorf("live read: %v", err)
	}
	loose := &unstructured.Unstructured{}
	loose.SetGroupVersionKind(routeKind())
	if err := l.GetClient().Get(ctx, key, loose); err != nil {
		o.t.Errorf("unstructured read: %v", err)
	}
	if err := l.GetClient().Delete(ctx, made); err != nil {
		o.t.Errorf("delete: %v", err)
	}
}

// expectAbsent uses the absent kind in every way.
func (o *routeReconciler) expectAbsent(l *runningScope) {
	o.t.Helper()
	informers := o.hub.Informers.InformerCount()
	ctx := o.t.Context()
	route := &Route{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "late"}}
	loose := &unstructured.Unstructured{}
	loose.SetGroupVersionKind(routeKind())
	key := client.ObjectKeyFromObject(route)
	_, mapping := l.GetRESTMapper().RESTMapping(routeKind().GroupKind(), routeKind().Version)
	for what, err := range map[string]error{
		"get": l.GetClient().Get(ctx, key, route), "list": l.GetClient().List(ctx, &RouteList{}),
		"unstructured": l.GetClient().Get(ctx, key, loose), "live": l.GetAPIReader().Get(ctx, key, route),
		"create": l.GetClient().Create(ctx, route), "mapping": mapping,
	} {
		if !meta.IsNoMatchError(err) {
			o.t.Errorf("%s of an absent kind: got %v, want a NoKindMatchError", what, err)
		}
	}
	if now := o.hub.Informers.InformerCount(); now != informers {
		o.t.Errorf("reads of an absent kind changed the number of informers from %d to %d", informers, now)
	}
}

func TestAnOptionalKindThatIsServedIsThereFromTheStart(t *testing.T) {
	r := newScopeEnv(t)
	def := routes("routes", apiextensionsv1.NamespaceScoped)
	r.install(def)
	ns := r.namespace()
	testenv.Must(t, r.freshClient().Create(t.Context(), &Route{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}))
	index := func(obj client.Object) []string { return []string{obj.GetName()} }
	var seen <-chan string
	l := r.begin(optionally(routeKind()), func(m *Manager) {
		testenv.Must(t, m.GetFieldIndexer().IndexField(t.Context(), &Route{}, "name", index))
		seen = r.listen(m.GetCache(), &Route{}, ns)
	})
	expect := func() {
		t.Helper()
		within(t, seen)
		var list RouteList
		r.eventually("the index answers", func(ctx context.Context) (bool, error) {
			err := l.GetClient().List(ctx, &list, client.MatchingFields{"name": "a"})
			return len(list.Items) == 1, err
		})
	}
	expect()
	if !l.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("the scope has not synced")
	}
	r.uninstall(def)
	r.expectInformers(0, 0)
	r.install(def)
	testenv.Must(t, r.freshClient().Create(t.Context(), &Route{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}))
	r.expectInformers(1, 1)
	expect()
	r.end(l)
	r.expectInformers(0, 0)
	r.uninstall(def)
}

func TestPresenceFollowsTheVerdicts(t *testing.T) {
	kind := routeKind()
	served := detect.Verdict{Presence: detect.Served, Plural: "routes", Namespaced: true, UID: "1"}
	moved := served
	moved.Plural = "routez"
	absent, doubt := detect.Verdict{Presence: detect.Absent}, detect.Verdict{Reason: "DiscoveryFailed"}
	tests := map[string]struct {
		before            []detect.Verdict
		now               detect.Verdict
		moves, there, out bool
		settled           bool
	}{
		"no query yet: unknown":                           {now: detect.Verdict{Reason: detect.ReasonDetecting}},
		"an unclear first verdict: unknown":               {now: doubt, settled: true},
		"an absent kind: absent":                          {now: absent, moves: true, out: true, settled: true},
		"a kind that stays absent: absent":                {before: []detect.Verdict{absent}, now: absent, out: true, settled: true},
		"a served kind: present":                          {now: served, moves: true, there: true, settled: true},
		"a kind that stays served: present":               {before: []detect.Verdict{served}, now: served, there: true, settled: true},
		"a replaced kind: present":                        {before: []detect.Verdict{served}, now: moved, moves: true, there: true, settled: true},
		"an unclear verdict on a served kind: present":    {before: []detect.Verdict{served}, now: doubt, there: true, settled: true},
		"an unclear verdict on an absent kind: absent":    {before: []detect.Verdict{absent}, now: doubt, out: true, settled: true},
		"an absent kind after an unclear verdict: absent": {before: []detect.Verdict{served, doubt}, now: absent, moves: true, out: true, settled: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &optionalKind{settled: newLatch()}
			for _, v := range test.before {
				p.noteVerdict(kind, v)
			}
			if got := p.noteVerdict(kind, test.now); got != test.moves {
				t.Errorf("moved: got %t, want %t", got, test.moves)
			}
			if p.kind != nil != test.there || p.isAbsent != test.out || p.settled.isOpen() != test.settled {
				t.Errorf("got kind %v, absent %t, settled %t", p.kind, p.isAbsent, p.settled.isOpen())
			}
		})
	}
}
