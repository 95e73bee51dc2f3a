// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// namingReconciler returns a reconciler that sends the names of its requests to the channel seen.
func namingReconciler(seen chan<- string) reconcile.Func {
	return func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		select {
		case seen <- r.Name:
		case <-ctx.Done():
		}
		return reconcile.Result{}, nil
	}
}

// TestIfServed runs a controller for ConfigMaps that also watches Widgets while they are served.
func TestIfServed(t *testing.T) {
	s := startAPIServer(t)
	addWidgets(s.scheme)
	mgr := s.newManagerFor(s.cfg)
	seen := make(chan string, 1000)
	var filtered atomic.Int32
	r := &optionalReader{Client: mgr.GetClient(), seen: seen}
	group, err := NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Watches(&Widget{}, &handler.EnqueueRequestForObject{}, IfServed, passing(&filtered)).
		WithGroup(DrainTimeout(patience)).
		Build(r)
	testenv.Must(t, err)
	s.startManager(mgr)
	s.waitForPhase(group, Running)
	since := group.Status().Since
	s.createConfigMap("primary")
	s.expectReconcile(seen, "primary")
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "any"}, &Widget{}); !meta.IsNoMatchError(err) {
		t.Errorf("read a kind that is not served: %v, want a NoKindMatchError", err)
	}
	for _, scope := range []apiextensionsv1.ResourceScope{apiextensionsv1.NamespaceScoped, apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped} {
		def := newWidgetCRD("widgets", scope)
		s.installCRD(def)
		namespace := map[bool]string{true: "default"}[scope == apiextensionsv1.NamespaceScoped]
		s.createWidgetIn(namespace, "secondary")
		s.expectReconcile(seen, "secondary")
		s.eventually("the Widget can be read and written", func(ctx context.Context) (bool, error) {
			var w Widget
			if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "secondary"}, &w); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			w.Spec.Message = "written"
			return true, r.Update(ctx, &w)
		})
		s.uninstallCRD(def)
		s.waitUntilGone(def)
		s.eventually("reads are refused again", func(ctx context.Context) (bool, error) {
			return meta.IsNoMatchError(r.List(ctx, &WidgetList{})), nil
		})
	}
	if now := group.Status(); now.Phase != Running || !now.Since.Equal(since) {
		t.Errorf("the controller was restarted: %+v, it ran since %s", now, since)
	}
	if filtered.Load() == 0 {
		t.Error("the predicate beside IfServed was dropped")
	}
}

// optionalReader is a reconciler whose client the builder replaces.
type optionalReader struct {
	client.Client
	seen chan string
}

func (r *optionalReader) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return namingReconciler(r.seen)(ctx, req)
}

func passing(counts *atomic.Int32) builder.Predicates {
	return builder.WithPredicates(predicate.NewPredicateFuncs(func(client.Object) bool { counts.Add(1); return true }))
}

// clusterRequest has the form of multicluster-runtime's request type.
type clusterRequest struct {
	reconcile.Request
	Cluster clusterName
}

type clusterName string

// TestClusterKind watches Widgets in two clusters. One of them does not serve Widgets at first.
func TestClusterKind(t *testing.T) {
	here, there := startAPIServer(t), startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	here.installCRD(def)
	mgr := here.newManagerFor(here.cfg)
	seen := make(chan clusterRequest, 1000)
	c, err := controller.NewTypedUnmanaged("widgets", controller.TypedOptions[clusterRequest]{
		SkipNameValidation: new(true), Logger: mgr.GetLogger(),
		Reconciler: reconcile.TypedFunc[clusterRequest](func(_ context.Context, r clusterRequest) (reconcile.Result, error) {
			seen <- r
			return reconcile.Result{}, nil
		}),
	})
	testenv.Must(t, err)
	testenv.Must(t, mgr.Add(c))
	here.startManager(mgr)
	kind := ClusterKind[clusterName, client.Object, clusterRequest]{
		Object: newWidget(),
		Handler: func(name clusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, clusterRequest] {
			return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []clusterRequest {
				return []clusterRequest{{reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}, name}}
			})
		},
	}
	leave := map[clusterName]context.CancelFunc{}
	for name, s := range map[clusterName]*apiServer{"here": here, "there": there} {
		src, engage, err := kind.ForCluster(name, s.newManagerFor(s.cfg))
		if err != nil || !engage {
			t.Fatalf("engage %s: %t, %v", name, engage, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		leave[name] = cancel
		testenv.Must(t, c.Watch(&engagedSource[clusterRequest]{of: func() context.Context { return ctx }, TypedSource: src}))
	}
	expect := func(name clusterName, object string) {
		t.Helper()
		here.eventually(object+" of "+string(name)+" is seen", func(ctx context.Context) (bool, error) {
			select {
			case r := <-seen:
				return r.Cluster == name && r.Name == object, nil
			case <-ctx.Done():
				return false, nil
			}
		})
	}
	here.createWidgetIn("default", "one")
	expect("here", "one")
	there.installCRD(def)
	there.createWidgetIn("default", "two")
	expect("there", "two")
	there.uninstallCRD(def)
	there.waitUntilGone(def)
	here.createWidgetIn("default", "three")
	expect("here", "three")
	there.installCRD(def)
	there.createWidgetIn("default", "four")
	expect("there", "four")
	leave["there"]()
	here.createWidgetIn("default", "five")
	expect("here", "five")
}

// engagedSource starts a source in the same way as multicluster-runtime: with the context of the cluster.
type engagedSource[request comparable] struct {
	of func() context.Context
	source.TypedSource[request]
}

func (e *engagedSource[request]) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	return e.TypedSource.Start(e.of(), queue)
}

// TestKind runs a controller that is never stopped and watches Widgets while they are served.
func TestKind(t *testing.T) {
	s := startAPIServer(t)
	mgr := s.newManagerFor(s.cfg)
	seen := make(chan string, 1000)
	src := Kind(mgr, client.Object(newWidget()), &handler.EnqueueRequestForObject{},
		predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }})
	testenv.Must(t, ctrl.NewControllerManagedBy(mgr).Named("kinds").WatchesRawSource(src).Complete(namingReconciler(seen)))
	s.startManager(mgr)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	for _, name := range []string{"first", "second"} {
		s.installCRD(def)
		s.createWidgetIn("default", name)
		s.expectReconcile(seen, name)
		s.uninstallCRD(def)
		s.waitUntilGone(def)
	}
}
