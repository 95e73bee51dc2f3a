// SPDX-License-Identifier: Apache-2.0

package conditional_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/extra"
)

// labeler is an ordinary reconciler. It does not depend on groups.
type labeler struct{ client.Client }

func (l *labeler) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}

func (l *labeler) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Node{}).Complete(l)
}

// newManager returns a manager in the same way as main.go.
func newManager() (manager.Manager, error) {
	return conditional.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{
		Scheme:  clientgoscheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		// Names are not validated, because tests run the examples several times in one process.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
}

// The manager starts although the Widget kind is not served. The labeler will start when the CRD is installed.
func ExampleSetup() {
	mgr, err := newManager()
	if err != nil {
		fmt.Println(err)
		return
	}
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	group, err := conditional.Setup(mgr, conditional.Served(widget), func(mgr manager.Manager) error {
		return (&labeler{Client: mgr.GetClient()}).SetupWithManager(mgr) // Use this mgr, not the outer one.
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := mgr.AddReadyzCheck("widgets", group.Checker(conditional.RequireResolved)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(group.Status().Name, "is", group.Status().Phase)
	// Output: Widget.v1.example.com is Dormant
}

// This condition is true while a kind is served and enabled by a ConfigMap.
func ExampleAll() {
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	flags := client.ObjectKey{Namespace: "default", Name: "flags"}
	when := conditional.All(
		conditional.FirstServed(widget, "v1", "v1beta1"),
		extra.Object(&corev1.ConfigMap{}, flags, func(obj client.Object) bool {
			return obj.GetAnnotations()["example.com/widgets"] == "on"
		}),
	)
	fmt.Println(when)
	// Output: All(FirstServed(Widget.example.com,v1,v1beta1),v1.ConfigMap:default:flags)
}

// A Lease is the condition of a group, so that other groups of the program may run in other replicas. The manager has
// no leader election of its own.
func Example_lease() {
	mgr, err := newManager()
	if err != nil {
		fmt.Println(err)
		return
	}
	leads := &extra.Reported{Name: "lease-widgets"}
	leads.Report(conditional.Status{State: conditional.False, Reason: conditional.ElsewhereReason, Message: "this replica does not hold the Lease"})
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "widgets", Name: "widgets"},
		Client:     coordinationclient.NewForConfigOrDie(mgr.GetConfig()),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "replica-1"},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads.Report(conditional.Status{State: conditional.True, Reason: "Leads"}) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	group, err := conditional.Setup(mgr, conditional.All(leads, conditional.Served(widget)), func(mgr manager.Manager) error {
		return (&labeler{Client: mgr.GetClient()}).SetupWithManager(mgr)
	}, conditional.Name("widgets"))
	if err != nil {
		fmt.Println(err)
		return
	}
	// Run returns if the Lease is lost. The process must exit then, before another replica holds the Lease.
	_ = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		elector.Run(ctx)
		if ctx.Err() == nil {
			return errors.New("the Lease is lost")
		}
		return nil
	}))
	fmt.Println(group.Status().Name, "is", group.Status().Phase)
	// Output: widgets is Dormant
}

// Only two lines differ from a controller that requires its CRD: NewManager and NewControllerManagedBy come from
// package conditional instead of ctrl.
func ExampleNewControllerManagedBy() {
	mgr, err := newManager()
	if err != nil {
		fmt.Println(err)
		return
	}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	err = conditional.NewControllerManagedBy(mgr).
		For(widget).
		Owns(&corev1.ConfigMap{}).
		Complete(&labeler{Client: mgr.GetClient()})
	fmt.Println("Widget is not served; error:", err)
	// Output: Widget is not served; error: <nil>
}

// The labeler runs while Widget is served. While Gadget is served, the labeler also watches Gadgets, without a restart
// when the kind appears or disappears. If a CRD flaps, the group starts three times immediately, and then once per
// minute.
func ExampleBuilder_WithGroup() {
	mgr, err := newManager()
	if err != nil {
		fmt.Println(err)
		return
	}
	kind := func(name string) client.Object {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name})
		return obj
	}
	group, err := conditional.NewControllerManagedBy(mgr).
		For(kind("Widget")).
		Owns(kind("Gadget"), conditional.IfServed).
		WithGroup(conditional.RestartLimit(3, wait.Backoff{Duration: time.Minute})).
		Named("labeler").
		Build(&labeler{Client: mgr.GetClient()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(group.Status().Name, "is", group.Status().Phase)
	// Output: labeler is Dormant
}

// This source is for a controller of several clusters. Each cluster is engaged whether or not it serves Widget.
func ExampleClusterKind() {
	mgr, err := newManager()
	if err != nil {
		fmt.Println(err)
		return
	}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	kind := conditional.ClusterKind[string, client.Object, reconcile.Request]{
		Object: widget,
		Handler: func(name string, _ cluster.Cluster) handler.TypedEventHandler[client.Object, reconcile.Request] {
			return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: name, Name: obj.GetName()}}}
			})
		},
	}
	_, engage, err := kind.ForCluster("edge-1", mgr)
	fmt.Println(engage, err)
	// Output: true <nil>
}
