// SPDX-License-Identifier: Apache-2.0

// Package controller creates missing processes of apps, reports the state of apps, starts apps whose timed stop has
// ended, deletes unused builds and packages, and removes the finalizer of a deleted app when its Pods are deleted. The
// controller of processes restarts apps.
package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Name is the name of the event reporter and of the field manager, which the controller of processes also uses. The
// name of this controller is Name-apps.
const Name = "torpor-restart"

const (
	// deletionInterval is the interval between two checks of an app that is being deleted. The deletion of an LRP also
	// triggers a check.
	deletionInterval = time.Second
	// byApp is the cache index of processes, LRPs, builds and packages by their app.
	byApp = "app"
)

// Controller reconciles CFApps.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard
	// Metrics exports the states of apps and counts revisions.
	Metrics *Metrics
	// Ends contains the overdue stops of all controllers. Follow-up work and events wait until these stops have ended.
	// If it is nil, overdue stops have no priority.
	Ends *priority.OverdueEnds

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/finalizers,verbs=update
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds;cfpackages,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	for _, kind := range []client.Object{&korifiv1alpha1.CFProcess{}, &eiriniv1.LRP{}, &korifiv1alpha1.CFBuild{}, &korifiv1alpha1.CFPackage{}} {
		index := func(o client.Object) []string { return []string{appNameOf(o)} }
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), kind, byApp, index); err != nil {
			return fmt.Errorf("set up %s: index %T: %w", Name, kind, err)
		}
	}
	c.Metrics.cache.Use(mgr.GetClient())
	c.Metrics.saved.UseClock(c.Clock)
	ends := priority.TrackEnds(c.Ends, Name+"-apps", c.isEndOverdue, c.hasJustStarted)
	err := builder.ControllerManagedBy(mgr).
		Named(Name+"-apps").
		For(&korifiv1alpha1.CFApp{}, builder.WithPredicates(predicate.Or(specOrAnnotationsChanged(), scheduledStopsChanged()))).
		Watches(&korifiv1alpha1.CFApp{}, ends.EnqueueOverdue()).
		Watches(&korifiv1alpha1.CFProcess{}, handler.EnqueueRequestsFromMapFunc(appForObject)).
		Watches(&korifiv1alpha1.CFBuild{}, handler.EnqueueRequestsFromMapFunc(appForObject)).
		Watches(&korifiv1alpha1.CFPackage{}, handler.EnqueueRequestsFromMapFunc(appForObject), builder.WithPredicates(createOrDelete())).
		Watches(&eiriniv1.LRP{}, handler.EnqueueRequestsFromMapFunc(appForObject), builder.WithPredicates(createOrDelete())).
		WithOptions(reconcile.WorkerOptions{Count: 20, PassTimeout: time.Minute, MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Minute}.Options()).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFApp, *observation, app.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard, Ends: ends,
			New:       func() *korifiv1alpha1.CFApp { return &korifiv1alpha1.CFApp{} },
			Finalizer: &reconcile.Finalizer[*korifiv1alpha1.CFApp]{Name: korifiv1alpha1.AppFinalizer, Finalize: c.finalize},
			Observe:   c.observe,
			Decide:    func(seen *observation) app.Plan { return app.Decide(seen.Observed) },
			Act:       c.act,
			Report:    c.report,
			Status: reconcilestatus.Storage[*korifiv1alpha1.CFApp]{
				Conditions: func(app *korifiv1alpha1.CFApp) *[]metav1.Condition { return &app.Status.Conditions },
				// Korifi's schema drops these fields. Without the observed revision, the revision would be counted a
				// second time.
				Remember: rememberStatus,
			},
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func (c Controller) isEndOverdue(obj *korifiv1alpha1.CFApp) bool {
	return app.NextStops(obj, c.Clock.Now()).HasExpired()
}

// hasJustStarted reports whether the app's stop has just reached its end, so that only follow-up work is left.
func (c Controller) hasJustStarted(_ context.Context, obj *korifiv1alpha1.CFApp) bool {
	return stoprecord.Records(obj.Status.Stops).HasJustExpired(c.Clock.Now())
}

func rememberStatus(app *korifiv1alpha1.CFApp) map[string]any {
	remembered := map[string]any{"observedRevision": app.Status.ObservedRevision, "restarts": app.Status.Restarts}
	if len(app.Status.Stops) > 0 {
		remembered["stops"] = app.Status.Stops
	}
	if app.Status.Savings != nil {
		remembered["savings"] = app.Status.Savings
	}
	return remembered
}

// appNameOf returns the name of the app of a process, an LRP, a build or a package.
func appNameOf(o client.Object) string {
	switch o := o.(type) {
	case *korifiv1alpha1.CFProcess:
		return o.Spec.AppRef.Name
	case *eiriniv1.LRP:
		return o.Spec.AppGUID
	case *korifiv1alpha1.CFBuild:
		return o.Spec.AppRef.Name
	case *korifiv1alpha1.CFPackage:
		return o.Spec.AppRef.Name
	default:
		return ""
	}
}

// appForObject maps a process, an LRP, a build or a package to its app.
func appForObject(_ context.Context, o client.Object) []ctrl.Request {
	name := appNameOf(o)
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// specOrAnnotationsChanged selects changes to the spec and to annotations. It ignores status updates and the
// controllers' own annotations.
func specOrAnnotationsChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers())
}

// scheduledStopsChanged selects changes to the stops that Slumbers request for an app.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(app *korifiv1alpha1.CFApp) any { return app.Status.ScheduledStops })
}

// createOrDelete ignores updates. Only the existence of LRPs and packages matters to an app, and processes report the
// state of their LRPs.
func createOrDelete() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}
