// SPDX-License-Identifier: Apache-2.0

// Package controller makes the processes that an app lacks, reports how the app is, and lets go of an app that is deleted when
// its Pods are gone.
package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the events and the field manager, which the controller of processes shares; the controller is called Name-apps.
const Name = "torpor-restart"

const (
	workers      = 20
	backoffStart = 50 * time.Millisecond
	backoffEnd   = time.Minute
	passTimeout  = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// staleRetry is when to look again after the cache turned out to be behind.
	staleRetry = 5 * time.Millisecond
	// deletionInterval is when an app that is deleted is looked at again; that an LRP goes is an event too.
	deletionInterval = time.Second
	// byApp is the field by which the cache finds the processes and the LRPs of an app.
	byApp = "app"
)

// Controller reconciles CFApps.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where states and counts are shown.
	Metrics *Metrics

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/finalizers,verbs=update
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds,verbs=get;list;watch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	for _, kind := range []client.Object{&korifiv1alpha1.CFProcess{}, &eiriniv1.LRP{}} {
		index := func(o client.Object) []string { return []string{appNameOf(o)} }
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), kind, byApp, index); err != nil {
			return fmt.Errorf("set up %s: index %T: %w", Name, kind, err)
		}
	}
	c.Metrics.use(mgr.GetClient())
	err := builder.ControllerManagedBy(mgr).
		Named(Name+"-apps").
		For(&korifiv1alpha1.CFApp{}, builder.WithPredicates(specOrAnnotationsChanged())).
		Watches(&korifiv1alpha1.CFProcess{}, handler.EnqueueRequestsFromMapFunc(appForObject)).
		Watches(&korifiv1alpha1.CFBuild{}, handler.EnqueueRequestsFromMapFunc(appForObject)).
		Watches(&eiriniv1.LRP{}, handler.EnqueueRequestsFromMapFunc(appForObject), builder.WithPredicates(createOrDelete())).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
		}).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFApp]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New:  func() *korifiv1alpha1.CFApp { return &korifiv1alpha1.CFApp{} },
			Step: c.step,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// step makes the processes that are missing and reports.
func (c Controller) step(ctx context.Context, obj *korifiv1alpha1.CFApp) (reconcile.Outcome, error) {
	seen, err := c.observe(ctx, obj)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if !obj.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, seen)
	}
	if !controllerutil.ContainsFinalizer(obj, korifiv1alpha1.AppFinalizer) {
		return reconcile.Outcome{After: staleRetry, Why: "keep it until its Pods are gone"}, c.patchFinalizers(ctx, obj, controllerutil.AddFinalizer)
	}
	created, err := c.createProcesses(ctx, app.MissingProcesses(seen))
	return c.report(seen, created), err
}

// appNameOf returns the app of a process, an LRP or a build.
func appNameOf(o client.Object) string {
	switch o := o.(type) {
	case *korifiv1alpha1.CFProcess:
		return o.Spec.AppRef.Name
	case *eiriniv1.LRP:
		return o.Spec.AppGUID
	case *korifiv1alpha1.CFBuild:
		return o.Spec.AppRef.Name
	default:
		return ""
	}
}

// appForObject maps a process, an LRP or a build to its app.
func appForObject(_ context.Context, o client.Object) []ctrl.Request {
	name := appNameOf(o)
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// specOrAnnotationsChanged lets through what people want, and not the controllers' own reports.
func specOrAnnotationsChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// createOrDelete leaves out changes: an app needs to know which LRPs there are, and their state reaches it through its processes.
func createOrDelete() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
