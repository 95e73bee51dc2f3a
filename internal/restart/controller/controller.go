// SPDX-License-Identifier: Apache-2.0

// Package controller is the shell around package restart: it observes apps and their processes, lets restart.Decide
// decide, acts once and reports.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controllers, their events and their field manager.
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
)

// Controller reconciles CFApps and CFProcesses.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where states and counts are shown.
	Metrics *Metrics

	client client.Client
	live   client.Reader
	pods   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/status;cfprocesses/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps/finalizers;cfprocesses/finalizers,verbs=update
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds,verbs=get;list;watch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	pods, err := podstatus.Cache(context.Background(), mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	if err := index(mgr); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.Metrics.use(mgr.GetClient())
	if err := c.setupApps(mgr); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	if err := c.setupProcesses(mgr, source.Kind[client.Object](pods, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(processOf))); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func (c Controller) setupApps(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(Name+"-apps").
		For(&korifiv1alpha1.CFApp{}, builder.WithPredicates(asked())).
		Watches(&korifiv1alpha1.CFProcess{}, handler.EnqueueRequestsFromMapFunc(appOfProcess)).
		Watches(&korifiv1alpha1.CFBuild{}, handler.EnqueueRequestsFromMapFunc(appOfBuild)).
		Watches(&eiriniv1.LRP{}, handler.EnqueueRequestsFromMapFunc(appOfLRP), builder.WithPredicates(comesOrGoes())).
		WithOptions(options()).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFApp]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New:  func() *korifiv1alpha1.CFApp { return &korifiv1alpha1.CFApp{} },
			Step: c.stepApp,
		})
}

func (c Controller) setupProcesses(mgr manager.Manager, pods source.Source) error {
	return builder.ControllerManagedBy(mgr).
		Named(Name+"-processes").
		For(&korifiv1alpha1.CFProcess{}, builder.WithPredicates(asked())).
		Owns(&eiriniv1.LRP{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.processesOfApp), builder.WithPredicates(asked())).
		Watches(&korifiv1alpha1.CFBuild{}, handler.EnqueueRequestsFromMapFunc(c.processesOfBuild)).
		Watches(&torporv1alpha1.CFDeployment{}, handler.EnqueueRequestsFromMapFunc(c.processesOfDeployment), builder.WithPredicates(asked())).
		WatchesRawSource(pods).
		WithOptions(options()).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFProcess]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New:  func() *korifiv1alpha1.CFProcess { return &korifiv1alpha1.CFProcess{} },
			Step: c.stepProcess,
		})
}

func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   passTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
	}
}

// asked lets through what somebody wants, and not the controllers' own reports.
func asked() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}
