// SPDX-License-Identifier: Apache-2.0

// Package controller reconciles the processes of apps: it observes a process, calls process.Decide, performs one
// action, and reports the result.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podcache"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Name is the name of the event reporter and of the field manager, which the controller of apps also uses. The name of
// this controller is Name-processes.
const Name = "torpor-restart"

// Controller reconciles CFProcesses.
type Controller struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard
	// Metrics records the durations of starts and drains.
	Metrics *Metrics
	// PodCache caches the Pods of apps.
	PodCache *podcache.Cache
	// Ends contains the overdue stops of all controllers. Follow-up work and events wait until these stops have ended.
	// If it is nil, overdue stops have no priority.
	Ends *priority.OverdueEnds

	client client.Client
	live   client.Reader
	pods   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses/finalizers,verbs=update
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfprocesses,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds,verbs=get;list;watch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfroutes;cfdomains;cfspaces;cforgs;cfserviceinstances;cfservicebindings,verbs=get;list;watch
// +kubebuilder:rbac:groups=torpor.dev,resources=cfdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	pods, err := c.PodCache.ShareWith(mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	if err := addIndexes(mgr); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).
		Named(Name+"-processes").
		For(&korifiv1alpha1.CFProcess{}, builder.WithPredicates(specOrAnnotationsChanged())).
		Owns(&eiriniv1.LRP{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, refusalChanged()))).
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.processesForApp), builder.WithPredicates(predicate.Or(specOrAnnotationsChanged(), scheduledStopsChanged()))).
		Watches(&korifiv1alpha1.CFBuild{}, handler.EnqueueRequestsFromMapFunc(c.processesForBuild)).
		Watches(&torporv1alpha1.CFDeployment{}, handler.EnqueueRequestsFromMapFunc(c.processesForDeployment), builder.WithPredicates(predicate.Or(specOrAnnotationsChanged(), deploymentEnds()))).
		WatchesRawSource(pods.Watch(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(korifiv1alpha1.ProcessGUIDLabel)))).
		WithOptions(reconcile.WorkerOptions{Count: 20, PassTimeout: time.Minute, MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Minute}.Options()).
		Complete(&reconcile.Pass[*korifiv1alpha1.CFProcess, *observation, process.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			Ends:    priority.TrackEnds(c.Ends, Name+"-processes", nil, c.hasJustStarted),
			New:     func() *korifiv1alpha1.CFProcess { return &korifiv1alpha1.CFProcess{} },
			Observe: c.observe,
			Decide:  func(seen *observation) process.Plan { return process.Decide(seen.Observed) },
			Act:     c.act,
			Report:  c.report,
			Status: reconcilestatus.Storage[*korifiv1alpha1.CFProcess]{
				Conditions: func(process *korifiv1alpha1.CFProcess) *[]metav1.Condition { return &process.Status.Conditions },
				// Korifi's schema drops these fields, but the controller of apps and the CF API need them.
				Remember: func(process *korifiv1alpha1.CFProcess) map[string]any {
					return map[string]any{"observedRevision": process.Status.ObservedRevision, "revisions": process.Status.Revisions}
				},
			},
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// hasJustStarted reports whether the app's stop has just reached its end, so that the work for its process is only
// follow-up work.
func (c Controller) hasJustStarted(ctx context.Context, process *korifiv1alpha1.CFProcess) bool {
	app := &korifiv1alpha1.CFApp{}
	key := client.ObjectKey{Namespace: process.Namespace, Name: process.Spec.AppRef.Name}
	if err := c.client.Get(ctx, key, app); err != nil { // The app is read from the cache.
		return false
	}
	return stoprecord.Records(app.Status.Stops).HasJustExpired(c.Clock.Now())
}
